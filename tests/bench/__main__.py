"""`make bench`: prints and writes build/bench/bench.json. A missed goal is shown, not an error."""

from tests.bench import plugin, report

if __name__ == "__main__":
    report.write("bench", plugin.measure())
