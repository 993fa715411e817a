"""Partitions come to be exactly as asked, and go without a trace."""

from __future__ import annotations

from dataclasses import replace

import pynvml
import pytest

from driver.core.errors import NotFound, NotSupported
from driver.core.ledger import Made
from driver.core.snapshot import InstanceFacts
from driver.nvml.compute import ComputeProfile, whole_instance
from hack.simnvml.boards import board, boards
from tests.nvml.migs import Cut, attributes, cut

WITH_MIG = [key for key, each in boards().items() if each.profiles]


@pytest.mark.parametrize("random_ids", [False, True], ids=["ids in order", "ids in any order"])
@pytest.mark.parametrize("key", WITH_MIG)
def test_every_profile_of_every_board_is_made_at_every_place_and_goes_again(
    make_node, key, random_ids
) -> None:
    gpu = cut(make_node([key]))
    gpu.machine.set(gi_ids_random=int(random_ids), mig_uuid_random=int(random_ids))
    for profile in gpu.geometry.profiles:
        for place, placement in enumerate(profile.placements):
            instance = gpu.create(profile, place)
            bare = InstanceFacts(id=instance, profile_id=profile.id, placement=placement)
            assert gpu.instances() == (bare,)
            compute = gpu.compute(instance)
            (seen,) = gpu.sim.instances()
            assert (seen.gi, seen.ci, seen.uuid) == (instance, compute.id, compute.uuid)
            assert (seen.profile, seen.start, seen.size) == (
                profile.name,
                placement.start,
                placement.size,
            )
            told = attributes(compute.uuid)
            assert (told.multiprocessorCount, told.memorySizeMB) == (
                profile.multiprocessors,
                profile.memory_mib,
            )
            assert gpu.node.gpu().mig.instances == gpu.instances()
            assert gpu.instances()[0].compute == (compute,)
            gpu.remove(instance, compute.id)
            assert gpu.machine.snapshot() == {}


def test_a_full_gpu_is_read_as_it_was_filled(make_node) -> None:
    gpu = cut(make_node("h100x1"))
    gpu.machine.set(gi_ids_random=1)
    made = {}
    for name, place in [("1g.10gb", 0), ("1g.10gb", 1), ("2g.20gb", 1), ("3g.40gb", 1)]:
        instance = gpu.create(name, place)
        made[instance] = gpu.compute(instance)
    found = gpu.instances()
    assert [instance.id for instance in found] == sorted(made)
    assert {instance.id: instance.compute for instance in found} == {
        instance: (compute,) for instance, compute in made.items()
    }
    assert {(i.placement.start, i.placement.size) for i in found} == {
        (0, 1),
        (1, 1),
        (2, 2),
        (4, 4),
    }


def test_what_others_made_is_seen_with_all_its_compute_instances(make_node) -> None:
    gpu = cut(make_node("h100x1"))
    instance = gpu.create("3g.40gb")
    handle = pynvml.nvmlDeviceGetGpuInstanceById(pynvml.nvmlDeviceGetHandleByIndex(0), instance)
    for kind in (pynvml.NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE, 0):
        pynvml.nvmlGpuInstanceCreateComputeInstance(handle, kind)
    (facts,) = gpu.instances()
    assert [each.id for each in facts.compute] == [0, 1]
    assert {each.uuid for each in facts.compute} == {i.uuid for i in gpu.sim.instances()}


def test_an_instance_of_a_profile_that_is_not_offered_is_seen_too(make_node) -> None:
    """Its slots are taken, though no name can be told."""
    gpu = cut(make_node("h100x1"))
    gpu.compute(gpu.create("1g.10gb"))
    before = gpu.instances()
    nameless = replace(board("h100-80").profiles[0], name="")
    gpu.machine.add_profile(0, replace(board("h100-80"), profiles=(nameless,)), 0)
    gpu.machine.set(driver="590.10")
    mig = gpu.node.gpu().mig
    assert mig.geometry is not None
    assert "1g.10gb" not in {p.name for p in mig.geometry.profiles}
    assert mig.instances == gpu.instances() == before


@pytest.mark.parametrize(
    ("slices", "offered", "chosen"),
    [
        (1, [(0, 1, 16), (7, 1, 26)], 7),
        (1, [(0, 1, 14)], 0),
        (7, [(0, 1, 16), (3, 4, 64), (4, 7, 132), (8, 7, 132)], 4),
        (7, [(3, 4, 64), (8, 7, 132)], 8),
        (3, [(0, 1, 16), (1, 2, 32), (2, 3, 60)], 2),
    ],
)
def test_the_default_is_all_slices_most_multiprocessors_and_the_plain_one_of_equals(
    slices, offered, chosen
) -> None:
    profiles = [
        ComputeProfile(id=number, slices=width, multiprocessors=cores, most=1)
        for number, width, cores in offered
    ]
    for order in (profiles, profiles[::-1]):
        assert whole_instance(order, slices=slices, about="it").id == chosen


def test_a_profile_that_no_compute_instance_covers_is_refused_by_name() -> None:
    half = ComputeProfile(id=0, slices=1, multiprocessors=16, most=2)
    with pytest.raises(NotSupported, match=r"for GPU-1, GPU instance 3: .* its 2 compute slices"):
        whole_instance([half], slices=2, about="GPU-1, GPU instance 3")


def test_the_kinds_of_compute_instances_are_asked_once_a_profile(make_node) -> None:
    gpu = cut(make_node("h100x1"))
    for place in (0, 1):
        gpu.compute(gpu.create("1g.10gb", place))
        gpu.instances()
        if place == 0:
            asked = gpu.machine.calls("nvmlGpuInstanceGetComputeInstanceProfileInfoV")
    assert gpu.machine.calls("nvmlGpuInstanceGetComputeInstanceProfileInfoV") == asked > 0


def test_no_mig_device_is_walked_to_find_a_uuid(make_node) -> None:
    gpu = cut(make_node("h100x1"))
    gpu.compute(gpu.create())
    gpu.instances()
    assert gpu.machine.calls("nvmlDeviceGetMigDeviceHandleByIndex") == 0


def test_processes_are_counted_on_a_partition_or_on_the_gpu(make_node) -> None:
    gpu = cut(make_node("h100x1"))
    made = []
    for place in (0, 1):
        instance = gpu.create("1g.10gb", place)
        compute = gpu.compute(instance)
        made.append(Made(instance=instance, compute=compute.id, uuid=compute.uuid))
    gpu.sim.process(42, 2**20, gi=made[1].instance, ci=made[1].compute)
    assert [gpu.partitions.processes(gpu.uuid, each) for each in (*made, None)] == [0, 1, 1]
    gpu.sim.process(42, 0, gi=made[1].instance, ci=made[1].compute)
    assert gpu.partitions.processes(gpu.uuid, made[1]) == 0
    gpu.remove(made[1].instance, made[1].compute)
    with pytest.raises(NotFound):
        gpu.partitions.processes(gpu.uuid, made[1])


def test_a_driver_that_does_not_tell_processes_says_so(make_node) -> None:
    gpu = Cut(node=make_node("h100x1"))
    refused = gpu.machine.rule("nvmlDeviceGetComputeRunningProcesses*", ret=3)
    with refused, pytest.raises(NotSupported):
        gpu.partitions.processes(gpu.uuid, None)
