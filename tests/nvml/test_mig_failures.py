"""What fails says why and what to do, and leaves the GPU as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml
import pytest

from driver.core.errors import (
    GpuLost,
    InstanceLeft,
    InUse,
    NoResources,
    NotFound,
    NotSupported,
    NvmlError,
)
from driver.core.geometry import Placement
from driver.core.ids import GpuUuid
from tests.nvml.migs import Cut, cut

NOBODY_MAY = 2
CREATE = "nvmlDeviceCreateGpuInstanceWithPlacement"
CREATE_COMPUTE = "nvmlGpuInstanceCreateComputeInstance"


def nothing(_gpu: Cut) -> None:
    pass


REFUSALS: dict[str, tuple[Callable[[Cut], Any], Placement, type[NvmlError], str]] = {
    "slots are taken": (
        lambda gpu: gpu.create("3g.40gb", 0),
        Placement(start=2, size=1),
        NoResources,
        "there is no room for it",
    ),
    "not a place of this profile": (nothing, Placement(start=7, size=1), NvmlError, "Invalid"),
    "not root": (
        lambda gpu: gpu.machine.set(require_root=NOBODY_MAY),
        Placement(start=0, size=1),
        NvmlError,
        "the plugin must run as root",
    ),
    "mig is off": (
        lambda gpu: gpu.sim.set(mig_current=0, mig_pending=0),
        Placement(start=0, size=1),
        NotSupported,
        "does not support it",
    ),
    "lost": (lambda gpu: gpu.sim.lose(), Placement(start=0, size=1), GpuLost, "reboot the node"),
    "needs a reset": (
        lambda gpu: gpu.sim.set(reset_required=1),
        Placement(start=0, size=1),
        GpuLost,
        "needs a reset",
    ),
}


@pytest.mark.parametrize("why", REFUSALS)
def test_a_partition_that_cannot_be_made_is_refused_by_kind_and_nothing_is_there(
    make_node, why
) -> None:
    condition, placement, kind, text = REFUSALS[why]
    gpu = cut(make_node("h100x2"))
    profile = gpu.profile()
    condition(gpu)
    before = gpu.machine.snapshot()
    with pytest.raises(NvmlError, match=text) as caught:
        gpu.partitions.create(gpu.uuid, profile, placement)
    assert type(caught.value) is kind
    assert str(caught.value).startswith(
        f"{CREATE} for {gpu.uuid}, 1g.10gb at slot {placement.start}: "
    )
    assert gpu.machine.snapshot() == before


def test_an_instance_that_does_not_lie_where_it_was_asked_for_is_taken_away(
    make_node, monkeypatch
) -> None:
    gpu = cut(make_node("h100x1"))
    real = pynvml.nvmlGpuInstanceGetInfo

    def moved(handle: Any) -> Any:
        info = real(handle)
        info.placement.start = 5
        return info

    monkeypatch.setattr(pynvml, "nvmlGpuInstanceGetInfo", moved)
    with pytest.raises(NvmlError, match="at slot 0: the driver put it at slot 5 with 1 slots"):
        gpu.create()
    assert gpu.machine.snapshot() == {}


def test_an_instance_that_cannot_be_read_back_is_taken_away(make_node) -> None:
    gpu = cut(make_node("h100x1"))
    profile = gpu.profile()
    with (
        gpu.machine.rule("nvmlGpuInstanceGetInfo", ret=pynvml.NVML_ERROR_UNKNOWN),
        pytest.raises(NvmlError, match=r"^nvmlGpuInstanceGetInfo for"),
    ):
        gpu.create(profile)
    assert gpu.machine.snapshot() == {}


def test_whoever_asked_for_an_instance_that_cannot_be_taken_away_either_is_told_that_it_is_there(
    make_node,
) -> None:
    gpu = cut(make_node("h100x1"))
    profile = gpu.profile()
    with (
        gpu.machine.rule("nvmlGpuInstanceGetInfo", ret=pynvml.NVML_ERROR_UNKNOWN),
        gpu.machine.rule("nvmlGpuInstanceDestroy", ret=pynvml.NVML_ERROR_IN_USE),
        pytest.raises(
            InstanceLeft, match=r"^nvmlGpuInstanceDestroy for .*, after nvmlGpuInstanceG"
        ),
    ):
        gpu.create(profile)
    assert len(gpu.instances()) == 1


def test_an_instance_that_went_by_itself_is_not_left(make_node) -> None:
    gpu = cut(make_node("h100x1"))
    profile = gpu.profile()
    with (
        gpu.machine.rule("nvmlGpuInstanceGetInfo", ret=pynvml.NVML_ERROR_UNKNOWN),
        gpu.machine.rule("nvmlGpuInstanceDestroy", ret=pynvml.NVML_ERROR_NOT_FOUND),
        pytest.raises(NvmlError, match=r"^nvmlGpuInstanceGetInfo for"),
    ):
        gpu.create(profile)


@pytest.mark.parametrize(
    ("symbol", "code", "kind"),
    [
        (CREATE_COMPUTE, pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES, NoResources),
        (CREATE_COMPUTE, pynvml.NVML_ERROR_UNKNOWN, NvmlError),
        ("nvmlComputeInstanceGetInfo_v2", pynvml.NVML_ERROR_UNKNOWN, NvmlError),
        ("nvmlDeviceGetUUID", pynvml.NVML_ERROR_GPU_IS_LOST, GpuLost),
        ("nvmlGpuInstanceGetComputeInstanceProfileInfoV", pynvml.NVML_ERROR_UNKNOWN, NvmlError),
    ],
)
def test_a_compute_instance_that_fails_leaves_the_bare_gpu_instance_for_its_maker_to_destroy(
    make_node, symbol, code, kind
) -> None:
    gpu = cut(make_node("h100x1"))
    instance = gpu.create()
    with gpu.machine.rule(symbol, ret=code), pytest.raises(NvmlError) as caught:
        gpu.compute(instance)
    assert type(caught.value) is kind
    assert f"for {gpu.uuid}, GPU instance {instance}: " in str(caught.value)
    (bare,) = gpu.instances()
    assert (bare.id, bare.compute) == (instance, ())
    gpu.partitions.destroy(gpu.uuid, instance)
    assert gpu.machine.snapshot() == {}


def test_multiprocessors_that_no_compute_instance_can_own_are_told(
    make_node, monkeypatch, caplog
) -> None:
    gpu = cut(make_node("h100x1"))
    instance = gpu.create("1g.20gb")
    real = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo

    def fewer(handle: Any, index: int, *rest: Any) -> Any:
        if index == pynvml.NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE_REV1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return real(handle, index, *rest)

    monkeypatch.setattr(pynvml, "nvmlGpuInstanceGetComputeInstanceProfileInfo", fewer)
    gpu.compute(instance)
    (line,) = caplog.records
    assert (line.profile, line.owned, line.usable) == ("1g.20gb", 26, 16)


# -- taking away


def test_what_is_in_use_is_not_taken_away(make_node) -> None:
    gpu = cut(make_node("h100x1"))
    instance = gpu.create()
    compute = gpu.compute(instance)
    with pytest.raises(InUse, match=f"{gpu.uuid}, GPU instance {instance}: it is in use"):
        gpu.partitions.destroy(gpu.uuid, instance)
    gpu.sim.process(4711, 2**20, gi=instance, ci=compute.id)
    with pytest.raises(InUse, match=f"GPU instance {instance}, compute instance {compute.id}"):
        gpu.partitions.destroy_compute(gpu.uuid, instance, compute.id)
    assert gpu.instances()[0].compute == (compute,)
    gpu.sim.process(4711, 0)
    gpu.remove(instance, compute.id)
    assert gpu.machine.snapshot() == {}


@pytest.mark.parametrize("mig", [True, False], ids=["mig on", "mig off"])
def test_what_is_not_there_is_not_found(make_node, mig) -> None:
    gpu = cut(make_node("h100x1"))
    instance = gpu.create()
    if mig:
        with pytest.raises(NotFound):
            gpu.partitions.destroy_compute(gpu.uuid, instance, 0)
    gpu.partitions.destroy(gpu.uuid, instance)
    gpu.partitions.set_mode(gpu.uuid, on=mig)
    for gone in (
        lambda: gpu.partitions.destroy(gpu.uuid, instance),
        lambda: gpu.partitions.destroy_compute(gpu.uuid, instance, 0),
        lambda: gpu.compute(instance),
    ):
        with pytest.raises(NotFound, match=f"{gpu.uuid}, GPU instance {instance}"):
            gone()
    with pytest.raises(NotFound, match="for GPU-0: there is no such GPU"):
        gpu.partitions.destroy(GpuUuid("GPU-0"), instance)


def test_an_instance_that_got_the_id_of_an_earlier_one_is_told_apart_by_its_uuid(
    make_node,
) -> None:
    gpu = cut(make_node("h100x1"))
    gpu.machine.set(mig_uuid_random=1)
    instance = gpu.create()
    first = gpu.compute(instance)
    gpu.remove(instance, first.id)
    assert gpu.create() == instance
    second = gpu.compute(instance)
    assert second.id == first.id
    assert second.uuid != first.uuid
    assert gpu.instances()[0].compute == (second,)
