"""Faults: rules on calls, conditions of a GPU, conditions of the machine."""

from __future__ import annotations

import ctypes
import time

import pynvml as n
import pytest

from hack.simnvml.kit import Machine
from tests.simnvml.helpers import code_of, partition, start

XID = n.nvmlEventTypeXidCriticalError

needs_new_binding = pytest.mark.skipif(
    not hasattr(n, "c_nvmlEventSetWait_v3_t"), reason="nvidia-ml-py before 13.610 lacks these calls"
)


def temperature(gpu) -> int:
    return code_of(n.nvmlDeviceGetTemperature, gpu, 0)


# -- rules


def test_a_rule_hits_as_often_as_it_says_and_then_is_gone(nvml, make_machine) -> None:
    machine = make_machine()
    gpu = start()
    machine.rule("nvmlDeviceGetTemp*", ret=999, times=2)
    assert [temperature(gpu) for _ in range(4)] == [999, 999, 0, 0]
    assert machine.rules() == []


def test_a_rule_ends_with_its_block(nvml, make_machine) -> None:
    machine = make_machine()
    gpu = start()
    with machine.rule("nvmlDeviceGetTemperature", ret=n.NVML_ERROR_TIMEOUT):
        assert temperature(gpu) == n.NVML_ERROR_TIMEOUT
    assert temperature(gpu) == 0


def test_a_rule_lets_some_calls_pass_first(nvml, make_machine) -> None:
    machine = make_machine()
    gpu = start()
    machine.rule("nvmlDeviceGetTemperature", ret=999, after=2, times=1)
    assert [temperature(gpu) for _ in range(4)] == [0, 0, 999, 0]


def test_the_first_rule_wins(nvml, make_machine) -> None:
    machine = make_machine()
    gpu = start()
    machine.rule("nvmlDeviceGetTemperature", ret=3)
    machine.rule("*", ret=999)
    assert temperature(gpu) == 3
    assert code_of(n.nvmlDeviceGetPowerUsage, gpu) == 999


def test_a_rule_for_one_gpu_spares_the_others_and_hits_look_ups_too(nvml, make_machine) -> None:
    machine = make_machine("h100x2")
    n.nvmlInit()
    well, sick = (n.nvmlDeviceGetHandleByIndex(i) for i in range(2))
    uuid = n.nvmlDeviceGetUUID(sick)
    with machine.rule("*", ret=999, gpu=1):
        assert (temperature(well), temperature(sick)) == (0, 999)
        assert code_of(n.nvmlDeviceGetHandleByIndex, 0) == 0
        assert code_of(n.nvmlDeviceGetHandleByIndex, 1) == 999
        assert code_of(n.nvmlDeviceGetHandleByUUID, uuid) == 999


def test_chance_is_repeatable(nvml, make_machine) -> None:
    machine = make_machine()
    gpu = start()

    def run(seed: int) -> list[int]:
        with machine.rule("nvmlDeviceGetTemperature", ret=999, probability=0.3, seed=seed):
            return [temperature(gpu) for _ in range(200)]

    assert run(7) == run(7) != run(8)
    assert 30 < run(7).count(999) < 90


def test_a_slow_call_works_and_does_not_hold_up_others(nvml, make_machine) -> None:
    machine = make_machine("h100x2")
    gpu = start(mig=True)
    gi, ci, _ = partition(gpu)
    n.nvmlComputeInstanceDestroy(ci)
    machine.rule("nvmlGpuInstanceDestroy", delay_ms=60)
    began = time.monotonic()
    n.nvmlGpuInstanceDestroy(gi)
    assert time.monotonic() - began >= 0.06
    assert machine.snapshot() == {}


def test_too_many_rules_are_refused_with_the_next_step(make_machine) -> None:
    machine = make_machine()
    for _ in range(64):
        machine.rule("x")
    with pytest.raises(RuntimeError, match="clear some"):
        machine.rule("x")
    machine.clear_rules()
    machine.rule("x")


# -- counters


def test_calls_are_counted_and_the_last_are_kept_in_order(nvml, make_machine) -> None:
    machine = make_machine("h100x2")
    gpu = start(1)
    before = machine.calls()
    for _ in range(300):
        n.nvmlDeviceGetTemperature(gpu, 0)
    code_of(n.nvmlDeviceGetMigDeviceHandleByIndex, gpu, 0)
    assert machine.calls() - before == 301
    assert machine.calls("nvmlDeviceGetTemp*") == 300
    log = machine.last_calls()
    assert len(log) == 256
    assert [call.at for call in log] == sorted(call.at for call in log)
    last = log[-1]
    assert (last.symbol, last.gpu) == ("nvmlDeviceGetMigDeviceHandleByIndex", 1)
    assert last.ret == n.NVML_ERROR_NOT_SUPPORTED


def test_a_look_up_counts_once_even_under_a_rule_of_its_gpu(nvml, make_machine) -> None:
    machine = make_machine()
    n.nvmlInit()
    machine.rule("nvmlDeviceGetHandleByIndex*", ret=999, gpu=0, times=2)
    assert code_of(n.nvmlDeviceGetHandleByIndex, 0) == 999
    assert machine.calls("nvmlDeviceGetHandleByIndex*") == 1
    assert machine.rules()[0]["left"] == 1


def test_waiting_for_calls_that_never_come_says_how_many_came(nvml, make_machine) -> None:
    machine = make_machine()
    n.nvmlInit()
    machine.wait_calls("nvmlInit*", 1)
    with pytest.raises(TimeoutError, match="called 1 times"):
        machine.wait_calls("nvmlInit*", 2, timeout=0.05)


# -- a GPU's conditions


def test_a_lost_gpu_is_lost_to_every_call_while_the_others_go_on(nvml, make_machine) -> None:
    machine = make_machine("h100x2")
    gpu = start(0)
    uuid = n.nvmlDeviceGetUUID(gpu)
    machine.gpu(0).lose()
    for call in (
        lambda: n.nvmlDeviceGetName(gpu),
        lambda: n.nvmlDeviceGetHandleByIndex(0),
        lambda: n.nvmlDeviceGetHandleByUUID(uuid),
        lambda: n.nvmlDeviceGetHandleByPciBusId(machine.gpu(0).pci),
    ):
        assert code_of(call) == n.NVML_ERROR_GPU_IS_LOST
    assert n.nvmlDeviceGetCount() == 2
    assert n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByIndex(1)) == machine.gpu(1).uuid


def test_an_unplugged_gpu_shifts_indexes_but_not_minors(nvml, make_machine) -> None:
    machine = make_machine("h100x4")
    gone = start(1)
    machine.gpu(1).unplug()
    assert n.nvmlDeviceGetCount() == 3
    second = n.nvmlDeviceGetHandleByIndex(1)
    assert n.nvmlDeviceGetUUID(second) == machine.gpu(2).uuid
    assert (n.nvmlDeviceGetIndex(second), n.nvmlDeviceGetMinorNumber(second)) == (1, 2)
    assert code_of(n.nvmlDeviceGetName, gone) == n.NVML_ERROR_GPU_IS_LOST
    machine.gpu(1).plug()
    assert n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByIndex(1)) == machine.gpu(1).uuid


def test_fields_can_be_made_unsupported_one_by_one(nvml, make_machine) -> None:
    machine = make_machine()
    gpu = start()
    machine.gpu(0).set(serial=None, numa=None, temp=None)
    for call in (n.nvmlDeviceGetSerial, n.nvmlDeviceGetNumaNodeId):
        assert code_of(call, gpu) == n.NVML_ERROR_NOT_SUPPORTED
    assert temperature(gpu) == n.NVML_ERROR_NOT_SUPPORTED
    machine.gpu(0).set(serial="1", temp=50)
    assert n.nvmlDeviceGetSerial(gpu) == "1"
    assert n.nvmlDeviceGetTemperature(gpu, 0) == 50


def test_health_shows_where_nvml_shows_it(nvml, make_machine) -> None:
    machine = make_machine()
    gpu = start()
    machine.gpu(0).set(
        ecc_errors=[1, 2, 3, 4],
        sram_volatile_unc_secded=5,
        sram_threshold_exceeded=1,
        remap_uncorrected=1,
        remap_pending=1,
        clock_reasons=0x48,
        nvlink_up=0x3FFFE,
        inforom_corrupt=1,
        recovery_action=1,
    )
    total = [n.nvmlDeviceGetTotalEccErrors(gpu, kind, age) for kind in (0, 1) for age in (0, 1)]
    assert total == [1, 2, 3, 4]
    assert n.nvmlDeviceGetMemoryErrorCounter(gpu, 1, 0, n.NVML_MEMORY_LOCATION_SRAM) == 5
    sram = n.c_nvmlEccSramErrorStatus_v1_t()
    n.nvmlDeviceGetSramEccErrorStatus(gpu, ctypes.byref(sram))
    assert (sram.volatileUncSecDed, sram.bThresholdExceeded) == (5, 1)
    assert n.nvmlDeviceGetRemappedRows(gpu) == (0, 1, 1, 0)
    assert n.nvmlDeviceGetCurrentClocksEventReasons(gpu) == 0x48
    assert [n.nvmlDeviceGetNvLinkState(gpu, link) for link in (0, 1)] == [0, 1]
    assert code_of(n.nvmlDeviceValidateInforom, gpu) == n.NVML_ERROR_CORRUPTED_INFOROM
    action = n.nvmlDeviceGetFieldValues(gpu, [n.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])[0]
    assert (action.nvmlReturn, action.value.uiVal) == (0, n.NVML_GPU_RECOVERY_ACTION_GPU_RESET)


def test_remapping_is_hidden_once_there_are_instances(nvml, make_machine) -> None:
    make_machine()
    gpu = start(mig=True)
    assert code_of(n.nvmlDeviceGetRemappedRows, gpu) == 0
    partition(gpu)
    assert code_of(n.nvmlDeviceGetRemappedRows, gpu) == n.NVML_ERROR_NOT_SUPPORTED
    pending = n.nvmlDeviceGetFieldValues(gpu, [n.NVML_FI_DEV_REMAPPED_PENDING])[0]
    assert pending.nvmlReturn == n.NVML_ERROR_NOT_SUPPORTED


def test_a_field_value_has_its_own_return_code(nvml, make_machine) -> None:
    machine = make_machine()
    gpu = start()
    machine.gpu(0).field_value(169, 12)
    machine.gpu(0).field_value(173, 0, ret=n.NVML_ERROR_GPU_IS_LOST)
    codes = [v.nvmlReturn for v in n.nvmlDeviceGetFieldValues(gpu, [169, 173, 174])]
    assert codes == [0, n.NVML_ERROR_GPU_IS_LOST, n.NVML_ERROR_NOT_SUPPORTED]


# -- the machine's conditions


def test_no_driver_means_no_start_and_a_start_later(nvml, make_machine) -> None:
    machine = make_machine()
    machine.driver_loaded(False)
    assert code_of(n.nvmlInit) == n.NVML_ERROR_DRIVER_NOT_LOADED
    machine.driver_loaded(True)
    n.nvmlInit()
    machine.set(version_mismatch=1)
    assert code_of(n.nvmlDeviceGetCount) == n.NVML_ERROR_LIB_RM_VERSION_MISMATCH


def test_no_machine_means_no_driver(nvml, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("SIMNVML_STATE", str(tmp_path))
    assert code_of(n.nvmlInit) == n.NVML_ERROR_DRIVER_NOT_LOADED
    (tmp_path / "state").write_bytes(b"not a machine")
    assert code_of(n.nvmlInit) == n.NVML_ERROR_DRIVER_NOT_LOADED


def test_the_next_start_finds_the_machine_that_replaced_the_old(nvml, make_machine) -> None:
    old = make_machine("h100x2")
    gpu = start()
    Machine.create(old.path, "a30x4", driver="610.12.04").close()
    assert n.nvmlDeviceGetName(gpu) == "NVIDIA H100 80GB HBM3"
    n.nvmlShutdown()
    gpu = start()
    assert n.nvmlDeviceGetName(gpu) == "NVIDIA A30"
    assert n.nvmlSystemGetDriverVersion() == "610.12.04"


@needs_new_binding
def test_an_old_driver_lacks_what_came_later(nvml, make_machine) -> None:
    make_machine(driver="580.95.05")
    flag = n.nvmlDeviceGetUnrepairableMemoryFlag_v1
    assert code_of(flag, start()) == n.NVML_ERROR_FUNCTION_NOT_FOUND
    n.nvmlShutdown()
    machine = make_machine(driver="615.10.01")
    gpu = start()
    assert code_of(flag, gpu) == 0
    machine.set(absent="nvmlDeviceGetTemp*,nvmlDeviceGetSerial")
    assert code_of(n.nvmlDeviceGetSerial, gpu) == n.NVML_ERROR_FUNCTION_NOT_FOUND


def test_struct_versions_are_checked(nvml, make_machine) -> None:
    machine = make_machine()
    gpu = start()
    info = n.c_nvmlGpuFabricInfo_v3_t()
    assert code_of(n.nvmlDeviceGetGpuFabricInfoV, gpu, ctypes.byref(info)) == 0
    assert (info.state, info.healthSummary) == (3, 1)
    machine.set(fabric_version_max=2)
    mismatch = n.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
    assert code_of(n.nvmlDeviceGetGpuFabricInfoV, gpu, ctypes.byref(info)) == mismatch
    info.version = 0x7000001
    assert code_of(n.nvmlDeviceGetGpuFabricInfoV, gpu, ctypes.byref(info)) == mismatch


@pytest.mark.parametrize("visible", ["gpu", "partition"])
def test_a_container_sees_only_what_it_was_given(nvml, make_machine, monkeypatch, visible) -> None:
    machine = make_machine("h100x4")
    gpu = start(2, mig=True)
    _, _, mine = partition(gpu)
    _, _, other = partition(gpu)
    n.nvmlShutdown()
    monkeypatch.setenv("SIMNVML_VISIBLE", machine.gpu(2).uuid if visible == "gpu" else mine)
    n.nvmlInit()
    assert n.nvmlDeviceGetCount() == 1
    gpu = n.nvmlDeviceGetHandleByIndex(0)
    assert n.nvmlDeviceGetUUID(gpu) == machine.gpu(2).uuid
    assert code_of(n.nvmlDeviceGetHandleByUUID, machine.gpu(0).uuid) == n.NVML_ERROR_NOT_FOUND
    assert code_of(n.nvmlDeviceGetHandleByUUID, mine) == 0
    hidden = 0 if visible == "gpu" else n.NVML_ERROR_NOT_FOUND
    assert code_of(n.nvmlDeviceGetHandleByUUID, other) == hidden


# -- events


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
