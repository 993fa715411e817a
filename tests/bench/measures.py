"""What several benchmarks measure of a plugin process, and how samples are summed up."""

from __future__ import annotations

import statistics
from pathlib import Path

from hack.testbed import Testbed


def resident(bed: Testbed) -> float:
    assert bed.process is not None
    status = Path(f"/proc/{bed.process.pid}/status").read_text()
    kib = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
    return int(kib) / 1024


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def median_ms(values: list[float]) -> str:
    return f"{statistics.median(values) * 1000:.1f} ms"
