"""Event sets: who gets which event, and what a wait says."""

from __future__ import annotations

import pynvml as n

from tests.simnvml.helpers import code_of, needs_new_binding, partition, start

XID = n.nvmlEventTypeXidCriticalError


def watch(gpu, types: int = XID):
    events = n.nvmlEventSetCreate()
    n.nvmlDeviceRegisterEvents(gpu, types, events)
    return events


def test_an_xid_names_its_instance_or_nobody(nvml, make_machine) -> None:
    machine = make_machine("h100x2")
    events = watch(start(1))
    machine.gpu(1).xid(48, gi=1, ci=0)
    machine.gpu(0).xid(13)
    machine.gpu(1).xid(79)
    first, second = (n.nvmlEventSetWait_v2(events, 1000) for _ in range(2))
    assert (first.eventData, first.gpuInstanceId, first.computeInstanceId) == (48, 1, 0)
    assert (second.eventData, second.gpuInstanceId) == (79, 0xFFFFFFFF)
    assert n.nvmlDeviceGetUUID(second.device) == machine.gpu(1).uuid
    assert code_of(n.nvmlEventSetWait_v2, events, 0) == n.NVML_ERROR_TIMEOUT


def test_every_set_gets_every_event_and_a_slow_one_loses_the_oldest(nvml, make_machine) -> None:
    machine = make_machine()
    gpu = start()
    one, two = watch(gpu), watch(gpu)
    for code in range(1100):
        machine.gpu(0).xid(code)
    assert n.nvmlEventSetWait_v2(one, 0).eventData == 76
    assert n.nvmlEventSetWait_v2(two, 0).eventData == 76
    n.nvmlEventSetFree(one)
    assert code_of(n.nvmlEventSetWait_v2, one, 0) == n.NVML_ERROR_INVALID_ARGUMENT


def test_only_supported_events_of_parents_can_be_watched(nvml, make_machine) -> None:
    make_machine()
    gpu = start(mig=True)
    events = n.nvmlEventSetCreate()
    device = n.nvmlDeviceGetHandleByUUID(partition(gpu)[2])
    register = n.nvmlDeviceRegisterEvents
    assert code_of(register, device, XID, events) == n.NVML_ERROR_INVALID_ARGUMENT
    assert code_of(register, gpu, 0x8000, events) == n.NVML_ERROR_NOT_SUPPORTED
    assert n.nvmlDeviceGetSupportedEventTypes(gpu) & XID


@needs_new_binding
def test_a_new_driver_tells_of_recovery_and_of_uuids(nvml, make_machine) -> None:
    machine = make_machine(driver="615.10.01")
    events = watch(start(), n.nvmlEventTypeGpuRecoveryAction)
    machine.gpu(0).recovery(1)
    wait = n.c_nvmlEventSetWait_v3_t()
    wait.timeoutMs = 1000
    n.nvmlEventSetWait_v3(events, wait)
    assert (wait.eventType, wait.eventData, wait.uuid) == (0x8000, 1, machine.gpu(0).uuid)


def test_a_wait_on_a_lost_gpu_says_lost(nvml, make_machine) -> None:
    machine = make_machine("h100x2")
    gpu = start()
    events = watch(gpu)
    machine.gpu(1).lose()
    assert code_of(n.nvmlEventSetWait_v2, events, 0) == n.NVML_ERROR_TIMEOUT
    machine.gpu(0).lose()
    assert code_of(n.nvmlEventSetWait_v2, events, 1000) == n.NVML_ERROR_GPU_IS_LOST
