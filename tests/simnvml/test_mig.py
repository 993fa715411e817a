"""The life of partitions, as playbooks."""

from __future__ import annotations

import ctypes

import pynvml as n
import pytest

from tests.simnvml.helpers import code_of, create, partition, placements, profiles, start

ONE, THREE, FOUR, SEVEN, DOUBLE = 19, 9, 5, 0, 15  # profile ids of the 8-slot class


def test_a_partition_is_made_used_and_destroyed(nvml, make_machine) -> None:
    machine = make_machine("h100x2")
    gpu = start(mig=True)
    gi = create(gpu, THREE, 4, 4)
    ci = n.nvmlGpuInstanceCreateComputeInstance(gi, n.NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE)
    device = n.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0)

    assert n.nvmlDeviceGetName(device) == "NVIDIA H100 80GB HBM3 MIG 3g.40gb"
    attributes = n.nvmlDeviceGetAttributes(device)
    assert (attributes.multiprocessorCount, attributes.memorySizeMB) == (60, 40448)
    assert (attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount) == (3, 3)
    parent = n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)
    assert n.nvmlDeviceGetIndex(parent) == 0
    info = n.nvmlComputeInstanceGetInfo(ci)
    assert n.nvmlDeviceGetUUID(info.device) == n.nvmlDeviceGetUUID(device)
    [seen] = machine.gpu(0).instances()
    assert (seen.profile, seen.start, seen.size, seen.uuid) == (
        *("3g.40gb", 4, 4),
        n.nvmlDeviceGetUUID(device),
    )

    assert code_of(n.nvmlGpuInstanceDestroy, gi) == n.NVML_ERROR_IN_USE
    n.nvmlComputeInstanceDestroy(ci)
    assert [i.ci for i in machine.gpu(0).instances()] == [None]
    n.nvmlGpuInstanceDestroy(gi)
    assert machine.snapshot() == {}


def test_nothing_is_made_while_mig_is_off(nvml, make_machine) -> None:
    make_machine()
    gpu = start()
    assert n.nvmlDeviceGetMaxMigDeviceCount(gpu) == 0
    assert code_of(n.nvmlDeviceCreateGpuInstance, gpu, ONE) == n.NVML_ERROR_NOT_SUPPORTED
    capacity = n.nvmlDeviceGetGpuInstanceRemainingCapacity
    assert code_of(capacity, gpu, ONE) == n.NVML_ERROR_NOT_SUPPORTED
    assert placements(gpu, THREE) == [(0, 4), (4, 4)]  # known all the same


@pytest.mark.parametrize("at", [(2, 4), (0, 3), (8, 4)])
def test_a_placement_that_is_not_listed_is_an_invalid_argument(nvml, make_machine, at) -> None:
    make_machine()
    gpu = start(mig=True)
    assert code_of(create, gpu, THREE, *at) == n.NVML_ERROR_INVALID_ARGUMENT


def test_only_root_changes_partitions_where_the_machine_says_so(nvml, make_machine) -> None:
    machine = make_machine()
    gpu = start(mig=True)
    gi, ci, _ = partition(gpu)
    machine.set(require_root=2)
    assert code_of(n.nvmlDeviceCreateGpuInstance, gpu, ONE) == n.NVML_ERROR_NO_PERMISSION
    assert code_of(n.nvmlComputeInstanceDestroy, ci) == n.NVML_ERROR_NO_PERMISSION
    assert code_of(n.nvmlGpuInstanceDestroy, gi) == n.NVML_ERROR_NO_PERMISSION
    assert code_of(n.nvmlDeviceSetMigMode, gpu, 0) == n.NVML_ERROR_NO_PERMISSION


@pytest.mark.parametrize(
    ("key", "first", "second", "still"),
    [
        ("h100-80", "1g.10gb+me", "1g.10gb+me", "1g.10gb"),
        ("a30", "2g.12gb+me", "1g.6gb+me", "1g.6gb"),
        ("rtx-pro-6000", "1g.24gb+me.all", "1g.24gb", "1g.24gb-me"),
    ],
)
def test_media_engines_are_there_once(nvml, make_machine, key, first, second, still) -> None:
    make_machine([key]).gpu(0).set(mig_needs_reset=0)
    gpu = start(mig=True)
    by_name = {name: info.id for name, info in profiles(gpu).items()}
    n.nvmlDeviceCreateGpuInstance(gpu, by_name[first])
    refused = code_of(n.nvmlDeviceCreateGpuInstance, gpu, by_name[second])
    assert refused == n.NVML_ERROR_INSUFFICIENT_RESOURCES
    assert n.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, by_name[second]) == 0
    n.nvmlDeviceCreateGpuInstance(gpu, by_name[still])


def test_ids_come_from_the_size_not_from_the_place(nvml, make_machine) -> None:
    make_machine()
    gpu = start(mig=True)
    assert [n.nvmlGpuInstanceGetInfo(create(gpu, ONE, at, 1)).id for at in (6, 0)] == [7, 8]
    assert n.nvmlGpuInstanceGetInfo(create(gpu, DOUBLE, 4, 2)).id == 3


def test_random_ids_stay_in_their_class_and_differ_between_runs(nvml, make_machine) -> None:
    orders = set()
    for seed in "abcdef":
        machine = make_machine(["h100-80"], seed=seed)
        machine.set(gi_ids_random=1)
        gpu = start(mig=True)
        made = [n.nvmlDeviceCreateGpuInstance(gpu, ONE) for _ in range(7)]
        orders.add(tuple(n.nvmlGpuInstanceGetInfo(gi).id for gi in made))
        n.nvmlShutdown()
    assert len(orders) > 1
    assert all(len(set(order)) == 7 and set(order) <= set(range(7, 15)) for order in orders)


def test_a_mig_uuid_comes_back_with_the_same_ids_unless_told_otherwise(nvml, make_machine) -> None:
    machine = make_machine()
    gpu = start(mig=True)

    def once() -> str:
        gi, ci, uuid = partition(gpu)
        n.nvmlComputeInstanceDestroy(ci)
        n.nvmlGpuInstanceDestroy(gi)
        return uuid

    assert once() == once()
    machine.set(mig_uuid_random=1)
    assert once() != once()


def test_stale_handles_are_refused_even_when_the_id_lives_again(nvml, make_machine) -> None:
    make_machine()
    gpu = start(mig=True)
    gi, ci, uuid = partition(gpu)
    device = n.nvmlDeviceGetHandleByUUID(uuid)
    n.nvmlComputeInstanceDestroy(ci)
    n.nvmlGpuInstanceDestroy(gi)
    again, _, same = partition(gpu)
    assert n.nvmlGpuInstanceGetInfo(again).id == 7
    assert same == uuid
    assert code_of(n.nvmlGpuInstanceGetInfo, gi) == n.NVML_ERROR_INVALID_ARGUMENT
    assert code_of(n.nvmlComputeInstanceGetInfo, ci) == n.NVML_ERROR_INVALID_ARGUMENT
    assert code_of(n.nvmlDeviceGetName, device) == n.NVML_ERROR_NOT_FOUND
    assert code_of(n.nvmlDeviceGetName, ctypes.c_void_p(4096)) == n.NVML_ERROR_INVALID_ARGUMENT


def test_handles_never_run_out(nvml, make_machine) -> None:
    make_machine()
    gpu = start(mig=True)
    first = n.nvmlDeviceCreateGpuInstance(gpu, ONE)
    for _ in range(20_000):
        n.nvmlGpuInstanceDestroy(n.nvmlDeviceCreateGpuInstance(gpu, ONE))
    assert n.nvmlGpuInstanceGetInfo(first).id == 7


def test_destroyed_partitions_leave_holes_in_the_numbering(nvml, make_machine) -> None:
    make_machine()
    gpu = start(mig=True)
    parts = [partition(gpu) for _ in range(3)]
    by_index = n.nvmlDeviceGetMigDeviceHandleByIndex
    n.nvmlComputeInstanceDestroy(parts[1][1])
    assert code_of(by_index, gpu, 1) == n.NVML_ERROR_NOT_FOUND
    assert n.nvmlDeviceGetUUID(by_index(gpu, 2)) == parts[2][2]
    assert code_of(by_index, gpu, 7) == n.NVML_ERROR_INVALID_ARGUMENT


# -- busy, mode, reset


def test_what_is_in_use_is_not_destroyed(nvml, make_machine) -> None:
    machine = make_machine()
    gpu = start(mig=True)
    gi, ci, _ = partition(gpu)
    machine.gpu(0).busy(gi=7, ci=0)
    assert code_of(n.nvmlComputeInstanceDestroy, ci) == n.NVML_ERROR_IN_USE
    machine.gpu(0).busy(False, gi=7, ci=0)
    n.nvmlComputeInstanceDestroy(ci)
    machine.gpu(0).busy(gi=7)
    assert code_of(n.nvmlGpuInstanceDestroy, gi) == n.NVML_ERROR_IN_USE
    machine.gpu(0).busy(False, gi=7)
    n.nvmlGpuInstanceDestroy(gi)


def test_a_running_process_keeps_its_partition(nvml, make_machine) -> None:
    machine = make_machine()
    gpu = start(mig=True)
    _, ci, uuid = partition(gpu)
    machine.gpu(0).process(4242, 1 << 30, gi=7, ci=0)
    device = n.nvmlDeviceGetHandleByUUID(uuid)
    [running] = n.nvmlDeviceGetComputeRunningProcesses(device)
    assert (running.pid, running.usedGpuMemory, running.gpuInstanceId) == (4242, 1 << 30, 7)
    assert n.nvmlDeviceGetMemoryInfo(device).used == 1 << 30
    assert code_of(n.nvmlComputeInstanceDestroy, ci) == n.NVML_ERROR_IN_USE
    machine.gpu(0).process(4242, 0)
    assert n.nvmlDeviceGetComputeRunningProcesses(gpu) == []
    n.nvmlComputeInstanceDestroy(ci)


def test_the_mode_does_not_change_while_instances_live_and_the_call_does_not_fail(
    nvml, make_machine
) -> None:
    make_machine()
    gpu = start(mig=True)
    gi = n.nvmlDeviceCreateGpuInstance(gpu, ONE)
    assert n.nvmlDeviceSetMigMode(gpu, 0) == n.NVML_ERROR_IN_USE
    assert n.nvmlDeviceGetMigMode(gpu) == [1, 1]
    n.nvmlGpuInstanceDestroy(gi)
    assert n.nvmlDeviceSetMigMode(gpu, 0) == n.NVML_SUCCESS
    assert n.nvmlDeviceGetMigMode(gpu) == [0, 0]


def test_ampere_waits_for_a_reset(nvml, make_machine) -> None:
    machine = make_machine("dgx-a100")
    gpu = start()
    assert n.nvmlDeviceSetMigMode(gpu, 1) == n.NVML_ERROR_RESET_REQUIRED
    assert n.nvmlDeviceGetMigMode(gpu) == [0, 1]
    machine.gpu(0).reset()
    assert n.nvmlDeviceGetMigMode(gpu) == [1, 1]
    assert n.nvmlDeviceGetMaxMigDeviceCount(gpu) == 7


def test_a_reset_takes_all_partitions_and_makes_the_gpu_well(nvml, make_machine) -> None:
    machine = make_machine()
    gpu = start(mig=True)
    gi, _, _ = partition(gpu)
    machine.gpu(0).process(1, 1, gi=7, ci=0)
    machine.gpu(0).set(reset_required=1, recovery_action=1, remap_pending=1)
    assert code_of(n.nvmlDeviceCreateGpuInstance, gpu, ONE) == n.NVML_ERROR_RESET_REQUIRED
    machine.gpu(0).lose()
    machine.gpu(0).reset()
    assert machine.snapshot() == {}
    assert code_of(n.nvmlGpuInstanceGetInfo, gi) == n.NVML_ERROR_INVALID_ARGUMENT
    assert n.nvmlDeviceGetMigMode(gpu) == [1, 1]
    assert n.nvmlDeviceGetRemappedRows(gpu) == (0, 0, 0, 0)
    assert partition(gpu)[2].startswith("MIG-")


def test_a_reboot_keeps_mig_mode_on_ampere_only(nvml, make_machine) -> None:
    machine = make_machine(["a100-40", "h100-80"])
    n.nvmlInit()
    ampere, hopper = (n.nvmlDeviceGetHandleByIndex(i) for i in range(2))
    n.nvmlDeviceSetMigMode(ampere, 1)
    n.nvmlDeviceSetMigMode(hopper, 1)
    before = machine.get("boot_id")
    machine.reboot()
    assert machine.get("boot_id") != before
    assert n.nvmlDeviceGetMigMode(ampere) == [1, 1]
    assert n.nvmlDeviceGetMigMode(hopper) == [0, 0]


def test_a_board_without_mig_says_so(nvml, make_machine) -> None:
    make_machine("l40sx8")
    gpu = start()
    assert code_of(n.nvmlDeviceGetMigMode, gpu) == n.NVML_ERROR_NOT_SUPPORTED
    assert code_of(n.nvmlDeviceSetMigMode, gpu, 1) == n.NVML_ERROR_NOT_SUPPORTED
    assert profiles(gpu) == {}


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda h: n.nvmlDeviceGetTemperature(h, 0), n.NVML_ERROR_NOT_SUPPORTED),
        (n.nvmlDeviceGetRemappedRows, n.NVML_ERROR_NOT_SUPPORTED),
        (lambda h: n.nvmlDeviceGetNvLinkState(h, 0), n.NVML_ERROR_NOT_SUPPORTED),
        (n.nvmlDeviceGetMigMode, n.NVML_ERROR_INVALID_ARGUMENT),
        (lambda h: n.nvmlDeviceCreateGpuInstance(h, ONE), n.NVML_ERROR_INVALID_ARGUMENT),
    ],
)
def test_what_needs_the_parent_refuses_a_mig_handle(nvml, make_machine, call, code) -> None:
    make_machine()
    gpu = start(mig=True)
    device = n.nvmlDeviceGetHandleByUUID(partition(gpu)[2])
    assert code_of(call, device) == code
    assert n.nvmlDeviceIsMigDeviceHandle(device).value == 1  # the binding gives a c_uint
