"""Start, preparation and memory of the plugin on a simulated node with eight GPUs."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import grpc

from hack.fakekubelet import Claim, calls
from hack.testbed import DRIVER, REPO, Testbed
from tests.bench.report import Result

STARTS: Final = 7
PREPARES: Final = 400
VERSION: Final = "v1.DRAPlugin"
BATCH: Final = 20
"""Plugin and floor take turns in batches, so that the machine's moods meet both."""

IMPORTS: Final = """
import google.protobuf.message, grpc, kubernetes.client.rest, kubernetes.config.incluster_config
import kubernetes.config.kube_config, prometheus_client, pydantic, pynvml, urllib3, yaml
"""


def measure() -> dict[str, Result]:
    with Testbed.make("dgx-h100") as bed:
        start = starts(bed)
        bed.start_plugin()
        plugin, floor = prepares(bed)
        memory = resident(bed)
        bed.stop_plugin()
    return {
        "start_over_imports": start,
        "prepare_full_p50_over_floor": Result(
            value=statistics.median(plugin) / statistics.median(floor),
            goal=1.5,
            unit="x",
            detail=f"p50 {median_ms(plugin)} against a floor of {median_ms(floor)}",
        ),
        "prepare_full_p99_over_p50": Result(
            value=percentile(plugin, 0.99) / statistics.median(plugin),
            goal=4.0,
            unit="x",
            detail=f"p99 {percentile(plugin, 0.99) * 1000:.1f} ms",
        ),
        "plugin_rss_mib": Result(
            value=memory, goal=75.0, unit="MiB", detail=f"after {PREPARES} preparations"
        ),
    }


def starts(bed: Testbed) -> Result:
    """From spawning the process to the first slice at the API server; beside bare imports."""
    ours, imports = [], []
    for _ in range(STARTS):
        bed.api.cluster.delete_all("resourceslices")
        bed.api.requests.clear()
        began = time.perf_counter()
        bed.start_plugin(wait=False)
        bed.api.requests.wait_for("create", "resourceslices", timeout=60)
        ours.append(time.perf_counter() - began)
        bed.wait_ready()
        bed.stop_plugin()
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", IMPORTS], cwd=REPO, check=True)
        imports.append(time.perf_counter() - began)
    return Result(
        value=statistics.median(ours) / statistics.median(imports),
        goal=2.5,
        unit="x",
        detail=f"{median_ms(ours)} against imports of {median_ms(imports)}",
    )


def prepares(bed: Testbed) -> tuple[list[float], list[float]]:
    """Seconds of each fresh preparation, by the plugin and by the floor; same client for both."""
    claim = bed.claim("bench")
    socket = bed.folder / "floor.sock"
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.bench.floor",
            str(socket),
            bed.api.url,
            str(bed.folder / "f"),
        ],
        cwd=REPO,
        env=bed.environment(),
    )
    (info,) = bed.kubelet.registered(DRIVER)
    try:
        with calls.dial(socket) as bare, calls.dial(info.endpoint) as full:
            grpc.channel_ready_future(bare).result(timeout=30)
            plugin: list[float] = []
            floor: list[float] = []
            for _ in range(PREPARES // BATCH):
                for _ in range(BATCH):
                    plugin.append(timed(full, claim))
                    assert not bed.kubelet.unprepare(DRIVER, [claim])[claim.uid].error
                floor += [timed(bare, claim) for _ in range(BATCH)]
    finally:
        process.kill()
        process.wait()
    return plugin[BATCH:], floor[BATCH:]


def timed(channel: grpc.Channel, claim: Claim) -> float:
    began = time.perf_counter()
    answer = calls.prepare(channel, VERSION, [claim], timeout=10)[claim.uid]
    took = time.perf_counter() - began
    assert not answer.error, answer.error
    return took


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
