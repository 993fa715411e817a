"""Conditions of a GPU and of the machine."""

from __future__ import annotations

import ctypes

import pynvml as n
import pytest

from hack.simnvml.kit import Machine
from tests.simnvml.helpers import code_of, needs_new_binding, partition, start


def temperature(gpu) -> int:
    return code_of(n.nvmlDeviceGetTemperature, gpu, 0)


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


def test_pages_are_retired_only_where_a_test_says_so(nvml, make_machine) -> None:
    machine = make_machine()
    gpu = start()
    double_bit = n.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR
    assert code_of(n.nvmlDeviceGetRetiredPages, gpu, double_bit) == n.NVML_ERROR_NOT_SUPPORTED
    machine.gpu(0).set(retired_pages=3)
    assert len(n.nvmlDeviceGetRetiredPages(gpu, double_bit)) == 3
    single_bit = n.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS
    assert len(n.nvmlDeviceGetRetiredPages(gpu, single_bit)) == 0


def test_errors_of_a_link_are_a_field_of_that_link(nvml, make_machine) -> None:
    machine = make_machine()
    gpu = start()
    counters = [0] * 18 * 5
    counters[5 * 3 + 2] = 77
    machine.gpu(0).set(nvlink_errors=counters)
    of_three, of_four, of_none = n.nvmlDeviceGetFieldValues(gpu, [(163, 3), (163, 4), (163, 18)])
    assert (of_three.value.uiVal, of_four.value.uiVal) == (77, 0)
    assert of_none.nvmlReturn == n.NVML_ERROR_NOT_SUPPORTED


def test_what_runs_computes_and_draws_nothing(nvml, make_machine) -> None:
    machine = make_machine()
    gpu = start()
    machine.gpu(0).process(4711, 1 << 30)
    assert [p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(gpu)] == [4711]
    assert n.nvmlDeviceGetGraphicsRunningProcesses(gpu) == []


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
