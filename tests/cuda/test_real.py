"""The same child on the GPUs of this machine, where it has some. It computes on idle devices."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from driver.core.health.probe import Passed, ProbeTarget
from driver.core.health.signals import Scope
from driver.cuda.locate import CudaMissing, find_library
from driver.cuda.prober import Prober
from driver.nvml import NvmlLibrary

ROOT_VARIABLE = "GPU_DRIVER_ROOT"


class NoTopology:
    def pcie_root(self, _address: object) -> str | None:
        return None

    def numa_node(self, _address: object) -> int | None:
        return None


@pytest.mark.gpu
def test_every_gpu_and_partition_passes() -> None:
    root = Path(os.environ.get(ROOT_VARIABLE, "/"))
    if not any(path.exists() for path in (root / "dev/nvidiactl", Path("/dev/nvidiactl"))):
        pytest.skip("no NVIDIA GPU here: there is no /dev/nvidiactl")
    try:
        find_library(root)
    except CudaMissing as error:
        pytest.skip(f"no CUDA driver here (set {ROOT_VARIABLE}?): {error}")
    nvml = NvmlLibrary(driver_root=root, topology=NoTopology())
    snapshot = nvml.snapshot()
    nvml.close()
    prober = Prober(library=lambda: find_library(root))
    outcomes = {}
    for gpu in snapshot.gpus:
        uuids: list[str] = [gpu.uuid]
        if gpu.mig.enabled:
            uuids = [compute.uuid for each in gpu.mig.instances for compute in each.compute]
        for uuid in uuids:
            outcomes[uuid] = prober.probe(ProbeTarget(scope=Scope(gpu=gpu.uuid), uuid=uuid))
    print(outcomes)
    assert {type(outcome) for outcome in outcomes.values()} <= {Passed}
