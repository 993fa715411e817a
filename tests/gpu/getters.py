"""Which getters of pynvml are called, and with what.

Those that take nothing but a GPU are found by their signature; the others are listed here with
arguments that make sense on every GPU.
"""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Callable, Iterator
from typing import Any, Final

import pynvml

from tests.gpu.readonly import is_reading

Getter = tuple[str, Callable[[], Any]]
"""How the transcript names the call, and the call."""

_FIELDS: Final = (
    pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION,
    pynvml.NVML_FI_DEV_REMAPPED_PENDING,
    pynvml.NVML_FI_DEV_REMAPPED_FAILURE,
    pynvml.NVML_FI_DEV_MEMORY_TEMP,
)
_SUPERSEDED: Final = frozenset({"nvmlDeviceGetMemoryInfo", "nvmlDeviceGetFieldValues"})


def system_getters() -> Iterator[Getter]:
    for name, function in _functions("nvmlSystemGet"):
        if not _required(function):
            yield name, function
    yield "nvmlDeviceGetCount", pynvml.nvmlDeviceGetCount


def device_getters(handle: Any) -> Iterator[Getter]:
    for name, function in (*_functions("nvmlDeviceGet"), *_functions("nvmlDeviceIs")):
        if name not in _SUPERSEDED and _required(function) in (["handle"], ["device"]):
            yield name, _bind(function, handle)
    yield from _with_arguments(handle)


def _with_arguments(handle: Any) -> Iterator[Getter]:
    call = pynvml
    yield _getter(call.nvmlDeviceGetMemoryInfo, handle)
    yield _getter(call.nvmlDeviceGetMemoryInfo, handle, call.nvmlMemory_v2)
    yield _getter(call.nvmlDeviceGetTemperature, handle, call.NVML_TEMPERATURE_GPU)
    for layout in (call.c_nvmlGpuFabricInfo_v3_t, call.c_nvmlGpuFabricInfo_v2_t):
        yield (
            f"nvmlDeviceGetGpuFabricInfoV({layout.__name__})",
            _bind(call.nvmlDeviceGetGpuFabricInfoV, handle, ctypes.byref(layout())),
        )
    for kind in range(2):
        for age in range(2):
            yield _getter(call.nvmlDeviceGetTotalEccErrors, handle, kind, age)
            yield _getter(call.nvmlDeviceGetMemoryErrorCounter, handle, kind, age, 2)
    for link in range(call.NVML_NVLINK_MAX_LINKS):
        yield _getter(call.nvmlDeviceGetNvLinkState, handle, link)
    for field in _FIELDS:
        yield f"nvmlDeviceGetFieldValues({field})", _field(handle, field)
    for profile in range(call.NVML_GPU_INSTANCE_PROFILE_COUNT):
        yield _getter(call.nvmlDeviceGetGpuInstanceProfileInfo, handle, profile, 2)
    for index in range(8):
        yield _getter(call.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)


def _functions(prefix: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, value in sorted(vars(pynvml).items()):
        if name.startswith(prefix) and inspect.isfunction(value) and is_reading(name):
            yield name, value


def _required(function: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    return [each.name for each in parameters if each.default is each.empty]


def _getter(function: Callable[..., Any], handle: Any, *arguments: Any) -> Getter:
    told = f"({', '.join(map(str, arguments))})" if arguments else ""
    return f"{function.__name__}{told}", _bind(function, handle, *arguments)


def _bind(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    return lambda: function(*arguments)


def _field(handle: Any, field: int) -> Callable[[], Any]:
    """A field value has a return code of its own, which is the one that counts."""

    def read() -> int:
        value = pynvml.nvmlDeviceGetFieldValues(handle, [field])[0]
        if value.nvmlReturn:
            raise pynvml.NVMLError(value.nvmlReturn)
        return int(value.valueType)

    return read
