"""Reads what NVML says of one GPU's health; what it means is said in `driver.core.health.readings`.

Why it exists: each getter may be missing, fail or answer, and one that fails must not hide the
others. Only a GPU that as a whole does not answer ends the reading of it.

Must not know limits, history, signals.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import pynvml

from driver.core.errors import DriverNotLoaded, GpuLost, NvmlError
from driver.core.health.readings.values import (
    NOT_ASKED,
    Clocks,
    Failed,
    GpuReadings,
    MemoryUse,
    ModePair,
    Pages,
    PcieLink,
    Reading,
    Repairs,
    Rows,
    Trouble,
)
from driver.core.ids import GpuUuid
from driver.nvml.calls import call, counted, optional, translate
from driver.nvml.health_fabric import read_fabric

T = TypeVar("T")

_TROUBLES: Final = {
    pynvml.NVML_ERROR_GPU_IS_LOST: Trouble.LOST,
    pynvml.NVML_ERROR_RESET_REQUIRED: Trouble.RESET_REQUIRED,
    pynvml.NVML_ERROR_NOT_FOUND: Trouble.MISSING,
    28: Trouble.MISSING,  # GPU not found; not in the oldest binding that we take
    pynvml.NVML_ERROR_INSUFFICIENT_POWER: Trouble.POWER,
    pynvml.NVML_ERROR_IRQ_ISSUE: Trouble.INTERRUPTS,
}
_RECOVERY_ACTION: Final = 230
_LINK_COUNT: Final = 91
_LINK_CRC_ERRORS: Final = 163
"""A field per link, up to NVLink 4."""
_LINK_RECOVERIES_FAILED: Final = 214
"""A field per link, from NVLink 5 on."""
_IDLE: Final = 0x1
_HELD_BACK: Final = {
    0x8: "hardware slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


def failed(error: NvmlError) -> Failed:
    return Failed(trouble=_TROUBLES.get(error.code, Trouble.OTHER), text=str(error))


def read_gpu(
    handle: Any, gpu: GpuUuid, *, at: float, held: bool, whole: bool = True
) -> GpuReadings:
    """GpuLost, DriverNotLoaded: nothing can be read of it. Without `whole`, what changes slowly is
    not asked for.
    """

    def now(read: Callable[[Any, GpuUuid], T | None]) -> Reading[T]:
        try:
            return read(handle, gpu)
        except (DriverNotLoaded, GpuLost):
            raise
        except NvmlError as error:
            return failed(error)

    def slow(read: Callable[[Any, GpuUuid], T | None]) -> Reading[T]:
        return now(read) if whole else NOT_ASKED

    mig = now(_mode)
    partitioned = isinstance(mig, ModePair) and mig.current
    return GpuReadings(
        gpu=gpu,
        at=at,
        held=held,
        recovery=now(lambda h, g: _field(h, _RECOVERY_ACTION, g)),
        uncorrected=slow(_uncorrected),
        sram_threshold=slow(_sram),
        rows=slow(_rows),
        pages=slow(_pages),
        repairs=slow(_repairs),
        unrepairable=slow(_unrepairable),
        inforom_well=slow(_inforom),
        links=now(_links),
        link_errors=slow(lambda h, g: _per_link(h, _LINK_CRC_ERRORS, g)),
        link_failures=slow(lambda h, g: _per_link(h, _LINK_RECOVERIES_FAILED, g)),
        fabric=now(read_fabric),
        clocks=now(_clocks),
        pcie=slow(_pcie),
        load=slow(_load),
        mig=mig,
        memory=None if held or partitioned else slow(_memory),
    )


def _fields(handle: Any, ids: list[int | tuple[int, int]], gpu: str) -> list[int | None]:
    """None for those that the board does not have; the error of the first that fails."""
    values = optional("nvmlDeviceGetFieldValues", handle, ids, gpu=gpu)
    found: list[int | None] = []
    for value in values or ():
        if value.nvmlReturn == pynvml.NVML_SUCCESS:
            found.append(_number(value))
        elif value.nvmlReturn in {
            pynvml.NVML_ERROR_NOT_SUPPORTED,
            pynvml.NVML_ERROR_INVALID_ARGUMENT,
        }:
            found.append(None)
        else:
            name = f"nvmlDeviceGetFieldValues({value.fieldId})"
            raise counted(translate(value.nvmlReturn, call=name, gpu=gpu))
    return found or [None] * len(ids)


def _number(value: Any) -> int:
    kinds: Mapping[int, str] = {
        pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
        pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
        pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
        pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
        pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
    }
    return int(getattr(value.value, kinds.get(value.valueType, "uiVal")))


def _field(handle: Any, identifier: int, gpu: str) -> int | None:
    return _fields(handle, [identifier], gpu)[0]


def _mode(handle: Any, gpu: GpuUuid) -> ModePair | None:
    mode = optional("nvmlDeviceGetMigMode", handle, gpu=gpu)
    return None if mode is None else ModePair(current=bool(mode[0]), pending=bool(mode[1]))


def _uncorrected(handle: Any, gpu: GpuUuid) -> int | None:
    count = optional(
        "nvmlDeviceGetTotalEccErrors",
        handle,
        pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
        pynvml.NVML_VOLATILE_ECC,
        gpu=gpu,
    )
    return None if count is None else int(count)


def _sram(handle: Any, gpu: GpuUuid) -> bool | None:
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    name = "nvmlDeviceGetSramEccErrorStatus"
    if optional(name, handle, ctypes.byref(status), gpu=gpu) is None:
        return None
    return bool(status.bThresholdExceeded)


def _rows(handle: Any, gpu: GpuUuid) -> Rows | None:
    rows = optional("nvmlDeviceGetRemappedRows", handle, gpu=gpu)
    if rows is None:
        return None
    _, uncorrectable, pending, failure = rows
    return Rows(uncorrectable=int(uncorrectable), pending=bool(pending), failure=bool(failure))


def _pages(handle: Any, gpu: GpuUuid) -> Pages | None:
    cause = pynvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR
    pages = optional("nvmlDeviceGetRetiredPages", handle, cause, gpu=gpu)
    if pages is None:
        return None
    pending = optional("nvmlDeviceGetRetiredPagesPendingStatus", handle, gpu=gpu)
    return Pages(double_bit=len(pages), pending=bool(pending))


def _repairs(handle: Any, gpu: GpuUuid) -> Repairs | None:
    status = optional("nvmlDeviceGetRepairStatus", handle, gpu=gpu)
    return None if status is None else Repairs(channel=bool(status[0]), tpc=bool(status[1]))


def _unrepairable(handle: Any, gpu: GpuUuid) -> bool | None:
    name = "nvmlDeviceGetUnrepairableMemoryFlag_v1"
    if not hasattr(pynvml, name):
        return None
    flag = optional(name, handle, gpu=gpu)
    return None if flag is None else bool(flag)


def _inforom(handle: Any, gpu: GpuUuid) -> bool | None:
    try:
        call("nvmlDeviceValidateInforom", handle, gpu=gpu)
    except NvmlError as error:
        if error.code == pynvml.NVML_ERROR_CORRUPTED_INFOROM:
            return False
        if error.code == pynvml.NVML_ERROR_NOT_SUPPORTED:
            return None
        raise
    return True


def _links(handle: Any, gpu: GpuUuid) -> dict[int, bool] | None:
    found: dict[int, bool] = {}
    for link in range(_field(handle, _LINK_COUNT, gpu) or 0):
        state = optional("nvmlDeviceGetNvLinkState", handle, link, gpu=gpu)
        if state is not None:
            found[link] = bool(state)
    return found or None


def _per_link(handle: Any, identifier: int, gpu: GpuUuid) -> dict[int, int] | None:
    links = range(_field(handle, _LINK_COUNT, gpu) or 0)
    counts = _fields(handle, [(identifier, n) for n in links], gpu) if links else []
    found = {n: count for n, count in zip(links, counts, strict=True) if count is not None}
    return found or None


def _clocks(handle: Any, gpu: GpuUuid) -> Clocks | None:
    reasons = optional("nvmlDeviceGetCurrentClocksEventReasons", handle, gpu=gpu)
    if reasons is None:
        return None
    held_back = tuple(text for bit, text in _HELD_BACK.items() if reasons & bit)
    return Clocks(idle=bool(reasons & _IDLE), held_back=held_back)


def _pcie(handle: Any, gpu: GpuUuid) -> PcieLink | None:
    values = [
        optional(name, handle, gpu=gpu)
        for name in (
            "nvmlDeviceGetCurrPcieLinkWidth",
            "nvmlDeviceGetMaxPcieLinkWidth",
            "nvmlDeviceGetCurrPcieLinkGeneration",
            "nvmlDeviceGetMaxPcieLinkGeneration",
        )
    ]
    if None in values:
        return None
    width, max_width, generation, max_generation = (int(each or 0) for each in values)
    return PcieLink(
        width=width, max_width=max_width, generation=generation, max_generation=max_generation
    )


def _load(handle: Any, gpu: GpuUuid) -> int | None:
    """Not told while MIG is on."""
    rates = optional("nvmlDeviceGetUtilizationRates", handle, gpu=gpu)
    return None if rates is None else int(rates.gpu)


def _memory(handle: Any, gpu: GpuUuid) -> MemoryUse | None:
    memory = optional("nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2, gpu=gpu)
    compute = optional("nvmlDeviceGetComputeRunningProcesses", handle, gpu=gpu)
    if memory is None or compute is None:
        return None
    graphics = optional("nvmlDeviceGetGraphicsRunningProcesses", handle, gpu=gpu) or ()
    return MemoryUse(
        used=int(memory.used), total=int(memory.total), processes=len(compute) + len(graphics)
    )
