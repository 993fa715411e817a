"""What health costs while nothing is wrong: harmless lines, rest, and memory over a day.

Why it exists: a monitor that costs a core is switched off. The plugin is the real process on a
simulated node. What a fault costs is in `taint_latency.py`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from hack.testbed import Testbed
from tests.bench.measures import resident
from tests.bench.report import Result

HARMLESS: Final = 10_000
HARMLESS_SECONDS: Final = 10.0
REST_SECONDS: Final = 60.0
DAY_LINES: Final = 24 * 60 * 2
"""A day's events in a minute: two kernel lines for each minute of 24 hours."""
WARM_LINES: Final = 1000
"""So many that all that is bounded is full: 512 texts, 128 places of application errors."""


def measure() -> dict[str, Result]:
    with Testbed.make("dgx-h100") as bed:
        bed.start_plugin()
        results = {
            "harmless_lines_core_seconds": harmless(bed),
            "health_cpu_at_rest": at_rest(bed),
            "health_rss_growth_mib": a_day(bed),
        }
        bed.stop_plugin()
    return results


def gpus_of(bed: Testbed) -> list[tuple[str, str]]:
    """UUID and PCI address of each, as published."""
    found = {}
    for piece in bed.slices():
        for device in piece["spec"].get("devices", ()):
            own = device["attributes"]
            if own["type"]["string"] == "gpu":
                bus = own["resource.kubernetes.io/pciBusID"]["string"]
                found[own["uuid"]["string"]] = bus.rpartition(".")[0]
    return sorted(found.items())


def harmless(bed: Testbed) -> Result:
    """Application errors of all GPUs, at an even rate."""
    addresses = [address for _, address in gpus_of(bed)]
    before = cpu_seconds(bed)
    bed.api.requests.clear()
    began = time.perf_counter()
    for number in range(HARMLESS):
        code = (13, 31, 43, 45)[number % 4]
        channel = number // 8 % 16
        bed.kmsg(
            f"NVRM: Xid (PCI:{addresses[number % 8]}): {code}, pid=7, name=app, Ch {channel:08x}"
        )
        ahead = number / HARMLESS * HARMLESS_SECONDS - (time.perf_counter() - began)
        if ahead > 0:
            time.sleep(ahead)
    used = cpu_seconds(bed) - before
    writes = [r for r in bed.api.requests.writes() if r.resource == "resourceslices"]
    assert writes == [], f"application errors changed slices: {writes}"
    return Result(
        value=used, goal=1.0, unit="s", detail=f"{HARMLESS} lines in {HARMLESS_SECONDS:g} s"
    )


def at_rest(bed: Testbed) -> Result:
    before = cpu_seconds(bed)
    time.sleep(REST_SECONDS)
    share = (cpu_seconds(bed) - before) / REST_SECONDS
    return Result(
        value=share * 100,
        goal=1.0,
        unit="%",
        detail=f"of a core over {REST_SECONDS:g} s, eight GPUs",
    )


def a_day(bed: Testbed) -> Result:
    """A day's kernel lines, as fast as they are taken: half of them of an application."""
    addresses = [address for _, address in gpus_of(bed)]
    for number in range(WARM_LINES):
        day_line(bed, addresses, number)
    before = resident(bed)
    for number in range(DAY_LINES):
        day_line(bed, addresses, number)
    grown = resident(bed) - before
    return Result(
        value=grown, goal=1.0, unit="MiB", detail=f"from {before:.1f} MiB over {DAY_LINES} lines"
    )


def day_line(bed: Testbed, addresses: list[str], number: int) -> None:
    code = (13, 31, 43, 63, 92)[number % 5]
    bed.kmsg(f"NVRM: Xid (PCI:{addresses[number % 8]}): {code}, pid={number}, name=app{number}")


def cpu_seconds(bed: Testbed) -> float:
    assert bed.process is not None
    fields = Path(f"/proc/{bed.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
