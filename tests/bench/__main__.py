"""`make bench`: prints and writes build/bench/bench.json. A missed goal is shown, not an error.

With arguments, only those parts: `python -m tests.bench plugin`, `... health`, `... taint`.
"""

import sys

from tests.bench import health, plugin, report, taint_latency

PARTS = {
    "plugin": plugin.measure,
    "health": health.measure,
    "taint": taint_latency.measure,
}

if __name__ == "__main__":
    results: dict[str, report.Result] = {}
    for part in sys.argv[1:] or PARTS:
        results |= PARTS[part]()
    report.write("bench", results)
