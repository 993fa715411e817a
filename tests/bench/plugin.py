"""Start, preparation and memory of the plugin on a simulated node with eight GPUs."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import grpc

from hack.fakekubelet import Claim, calls
from hack.testbed import DRIVER, REPO, Testbed
from tests.bench.measures import median_ms, percentile, resident
from tests.bench.pod import PodTestbed
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
        whole = prepares(bed, bed.claim("whole"), writes=1)
        bed.end_claim(bed.allocate("whole"))
        part = prepares(bed, bed.claim("part", profile="1g.10gb"), writes=2)
        bed.end_claim(bed.allocate("part"))
        parallel = eight_at_once(bed)
        bed.stop_plugin()
    return {
        "start_over_imports": start,
        **compared("full", *whole, goal=1.5),
        **compared("mig", *part, goal=2.5),
        "prepare_parallel8_ratio": parallel,
        "plugin_rss_mib": memory(),
    }


def compared(
    what: str, plugin: list[float], floor: list[float], *, goal: float
) -> dict[str, Result]:
    """The two figures of one kind of preparation."""
    middle, tail = statistics.median(plugin), percentile(plugin, 0.99)
    return {
        f"prepare_{what}_p50_over_floor": Result(
            value=middle / statistics.median(floor),
            goal=goal,
            unit="x",
            detail=f"p50 {median_ms(plugin)} against a floor of {median_ms(floor)}",
        ),
        f"prepare_{what}_p99_over_p50": Result(
            value=tail / middle,
            goal=4.0,
            unit="x",
            detail=f"p99 {tail * 1000:.1f} ms; floor's {percentile(floor, 0.99) * 1000:.1f} ms",
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


def prepares(bed: Testbed, claim: Claim, *, writes: int) -> tuple[list[float], list[float]]:
    """Seconds of each fresh preparation, by the plugin and by the floor; same client for both."""
    socket, folder = bed.folder / f"floor{writes}.sock", bed.folder / f"floor{writes}"
    arguments = [str(socket), bed.api.url, str(folder), str(writes)]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.floor", *arguments], cwd=REPO, env=bed.environment()
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
    assert not bed.kubelet.prepare(DRIVER, [claim])[claim.uid].error
    return plugin[BATCH:], floor[BATCH:]


def eight_at_once(bed: Testbed) -> Result:
    """Eight claims on eight GPUs, with an NVML that takes 300 ms to make an instance."""
    claims = [bed.claim(f"at-once-{i}", profile="4g.40gb") for i in range(8)]
    (info,) = bed.kubelet.registered(DRIVER)
    with (
        bed.machine.rule("nvmlDeviceCreateGpuInstanceWithPlacement", delay_ms=300),
        calls.dial(info.endpoint) as channel,
        ThreadPoolExecutor(8) as pool,
    ):
        one = timed(channel, claims[0])
        assert not bed.kubelet.unprepare(DRIVER, [claims[0]])[claims[0].uid].error
        began = time.perf_counter()
        list(pool.map(lambda claim: timed(channel, claim), claims))
        all_of_them = time.perf_counter() - began
    return Result(
        value=all_of_them / one,
        goal=1.3,
        unit="x",
        detail=f"{all_of_them * 1000:.0f} ms for eight, {one * 1000:.0f} ms for one",
    )


def memory() -> Result:
    """In a pod, after preparations."""
    with PodTestbed.make("dgx-h100") as bed:
        bed.start_plugin()
        claim = bed.claim("whole")
        for _ in range(PREPARES):
            assert not bed.kubelet.prepare(DRIVER, [claim])[claim.uid].error
            assert not bed.kubelet.unprepare(DRIVER, [claim])[claim.uid].error
        detail = f"after {PREPARES} preparations"
        return Result(value=resident(bed), goal=75.0, unit="MiB", detail=detail)


def timed(channel: grpc.Channel, claim: Claim) -> float:
    began = time.perf_counter()
    answer = calls.prepare(channel, VERSION, [claim], timeout=10)[claim.uid]
    took = time.perf_counter() - began
    assert not answer.error, answer.error
    return took
