"""The probe's child on the GPUs of this machine. It computes, so they must be idle."""

from __future__ import annotations

import pytest

from driver.core.health.probe import Passed, ProbeTarget
from driver.core.health.signals import Scope
from driver.cuda.locate import find_library
from driver.cuda.prober import Prober
from driver.rooted import NotInDriverRoot

pytestmark = pytest.mark.gpu


def test_every_gpu_and_partition_passes(real) -> None:
    try:
        find_library(real.root)
    except NotInDriverRoot as error:
        pytest.skip(f"no CUDA driver beside NVML: {error}")
    prober = Prober(library=lambda: find_library(real.root))
    outcomes = {}
    for gpu in real.snapshot.gpus:
        uuids: list[str] = [gpu.uuid]
        if gpu.mig.enabled:
            uuids = [compute.uuid for each in gpu.mig.instances for compute in each.compute]
        for uuid in uuids:
            outcomes[uuid] = prober.probe(ProbeTarget(scope=Scope(gpu=gpu.uuid), uuid=uuid))
    print(outcomes)
    assert {type(outcome) for outcome in outcomes.values()} <= {Passed}
