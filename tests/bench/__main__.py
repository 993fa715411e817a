"""`make bench`: prints and writes build/bench/bench.json. A missed goal is shown, not an error.

With arguments, only those parts: `python -m tests.bench plugin`, `... health`.
"""

import sys

from tests.bench import health, plugin, report

PARTS = {"plugin": plugin.measure, "health": health.measure}

if __name__ == "__main__":
    results: dict[str, report.Result] = {}
    for part in sys.argv[1:] or PARTS:
        results |= PARTS[part]()
    report.write("bench", results)
