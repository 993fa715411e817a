"""What health costs: from a kernel line to a taint, harmless lines, rest, and memory over a day.

Why it exists: a fault that is published late is a job that is lost, and a monitor that costs a core
is switched off. The plugin is the real process on a simulated node; the API server is the stand-in,
so the time of a taint is compared with one PUT of the same slice to the same server.
"""

from __future__ import annotations

import copy
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from driver.kube.client import Client
from driver.kube.login import login
from driver.kube.throttle import TokenBucket
from driver.ports.resources import resource_slices
from hack.testbed import DRIVER, Testbed
from tests.bench.measures import percentile, resident
from tests.bench.report import Result

FAULTS: Final = 200
HARMLESS: Final = 10_000
HARMLESS_SECONDS: Final = 10.0
REST_SECONDS: Final = 60.0
PACE: Final = 1.05
DAY_LINES: Final = 24 * 60 * 2
"""A day's events in a minute: two kernel lines for each minute of 24 hours."""
PATIENCE: Final = 20.0
TAINT: Final = f"{DRIVER}/fault"
SLICES: Final = resource_slices()


def measure() -> dict[str, Result]:
    with Testbed.make("dgx-h100") as bed:
        bed.start_plugin()
        results = fault_to_taint(bed)
    # A node of its own: what is left of the faults would be taken back meanwhile.
    with Testbed.make("dgx-h100") as bed:
        bed.start_plugin()
        results["harmless_lines_core_seconds"] = harmless(bed)
        results["health_cpu_at_rest"] = at_rest(bed)
        results["health_rss_growth_mib"] = a_day(bed)
        bed.stop_plugin()
    return results


def fault_to_taint(bed: Testbed) -> dict[str, Result]:
    """Each fault is worse than the one before it on its GPU, so that each changes the taint."""
    client = connect(bed)
    spare = spare_slice(bed, client)
    taints: list[float] = []
    puts: list[float] = []
    faults = worse_and_worse(bed)
    for number in range(FAULTS):
        fault = next(faults, None)
        if fault is None:
            bed.stop_plugin()
            forget(bed)
            bed.start_plugin()
            faults = worse_and_worse(bed)
            fault = next(faults)
        gpu, address, code = fault
        began = time.perf_counter()
        bed.kmsg(f"NVRM: Xid (PCI:{address}): {code}, bench {number}")
        await_taint(bed, gpu, f"xid-{code}")
        taints.append(time.perf_counter() - began)
        # Taints change once a second at most; a fault that waited for that would not be measured.
        time.sleep(max(0.0, began + PACE - time.perf_counter()))
        puts.append(timed_put(client, spare))
    client.close()
    middle, tail = statistics.median(taints), percentile(taints, 0.99)
    put = statistics.median(puts)
    detail = f"p50 {middle * 1000:.1f} ms, one PUT {put * 1000:.1f} ms"
    return {
        "fault_to_taint_p50_over_put": Result(
            value=middle / put, goal=3.0, unit="x", detail=detail
        ),
        "fault_to_taint_p99_s": Result(
            value=tail, goal=0.5, unit="s", detail=f"over {len(taints)} faults"
        ),
    }


def worse_and_worse(bed: Testbed) -> Iterator[tuple[str, str, int]]:
    """(GPU, address, code): for each code all GPUs, the mildest code first."""
    gpus = gpus_of(bed)
    for code in (95, 79, 64):  # a reset, a reboot, an operator
        for gpu, address in gpus:
            yield gpu, address, code


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


def tainted(bed: Testbed, gpu: str, value: str) -> bool:
    """Whether every device of the GPU has the taint."""
    mine = [
        device
        for piece in bed.slices()
        for device in piece["spec"].get("devices", ())
        if gpu in {a.get("string") for a in device["attributes"].values()}
    ]
    return bool(mine) and all(
        any(t["key"] == TAINT and t["value"] == value for t in device.get("taints", ()))
        for device in mine
    )


def await_taint(bed: Testbed, gpu: str, value: str) -> None:
    bed.api.requests.wait(lambda _: tainted(bed, gpu, value), timeout=PATIENCE)


def connect(bed: Testbed) -> Client:
    return Client(
        login(kubeconfig=str(bed.folder / "kubeconfig")),
        user_agent="tessera-bench",
        throttle=TokenBucket(rate=1e6, burst=10**6),
    )


def spare_slice(bed: Testbed, client: Client) -> dict[str, Any]:
    """As large as the largest of the plugin's, of a driver that nobody has."""
    model = max(bed.slices(), key=lambda s: len(s["spec"].get("devices", ())))
    body = copy.deepcopy(model)
    body["metadata"] = {"name": "bench-spare"}
    body["spec"]["driver"] = "bench.example.com"
    for device in body["spec"]["devices"]:
        device.pop("consumesCounters", None)
        device.pop("taints", None)
    return client.create(SLICES, body)


def timed_put(client: Client, spare: dict[str, Any]) -> float:
    spare["metadata"].setdefault("labels", {})["turn"] = str(time.monotonic_ns())
    began = time.perf_counter()
    stored = client.replace(SLICES, spare)
    took = time.perf_counter() - began
    spare["metadata"] = stored["metadata"]
    return took


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
    for number in range(DAY_LINES // 10):  # warm: what is allocated once is there
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


def forget(bed: Testbed) -> None:
    """The evidence and the place in the kernel's log: as on a new node."""
    for name in ("evidence.json", "kmsg.json"):
        (bed.plugins / DRIVER / name).unlink(missing_ok=True)


def cpu_seconds(bed: Testbed) -> float:
    assert bed.process is not None
    fields = Path(f"/proc/{bed.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
