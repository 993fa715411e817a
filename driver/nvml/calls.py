"""One call into pynvml, with its error translated: the only place where NVML codes have a meaning.

pynvml's own exceptions stay inside: they cannot be hashed, and comparing one with anything else
raises AttributeError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import pynvml

from driver.core.errors import (
    DriverMismatch,
    DriverNotLoaded,
    GpuLost,
    InUse,
    LibraryMissing,
    NoResources,
    NotFound,
    NotSupported,
    NvmlError,
    ResetRequired,
)

_KINDS: Final[Mapping[int, tuple[type[NvmlError], str]]] = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        LibraryMissing,
        "libnvidia-ml.so.1 cannot be loaded; is the driver installed, and driver_root set to it?",
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        DriverNotLoaded,
        "the NVIDIA kernel driver is not loaded; check dmesg and the driver container",
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        DriverMismatch,
        "library and kernel driver are of different versions; finish the driver update",
    ),
    pynvml.NVML_ERROR_UNINITIALIZED: (DriverNotLoaded, "NVML is not initialised"),
    pynvml.NVML_ERROR_GPU_IS_LOST: (
        GpuLost,
        "the GPU has fallen off the bus or is not accessible; reset it or reboot the node",
    ),
    pynvml.NVML_ERROR_RESET_REQUIRED: (GpuLost, "the GPU needs a reset before it answers"),
    pynvml.NVML_ERROR_NOT_SUPPORTED: (NotSupported, "this board or driver does not support it"),
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: (NotSupported, "this driver does not have the function"),
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: (
        NotSupported,
        "this driver does not know this version of the structure",
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: (
        NvmlError,
        "permission denied; the plugin must run as root in a privileged container",
    ),
    pynvml.NVML_ERROR_NOT_FOUND: (NotFound, "there is no such GPU or instance"),
    pynvml.NVML_ERROR_IN_USE: (InUse, "it is in use by another client"),
    pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES: (NoResources, "there is no room for it"),
}


_ACTIVATION: Final[Mapping[int, tuple[type[NvmlError], str]]] = {
    pynvml.NVML_ERROR_IN_USE: (
        InUse,
        "somebody holds the GPU: a workload, DCGM, another agent or an instance; end that first",
    ),
    pynvml.NVML_ERROR_RESET_REQUIRED: (
        ResetRequired,
        "only a reset of the GPU changes it; drain the node, then reset or reboot",
    ),
}


_ANSWER_CODES: Final = frozenset({pynvml.NVML_ERROR_TIMEOUT, pynvml.NVML_ERROR_CORRUPTED_INFOROM})
"""Nothing came in the time that was given; and what the one call says that looks for it."""


class _Failures:
    """Who hears of failed calls. One a process, as pynvml holds one library."""

    def __init__(self) -> None:
        self.told: Callable[[str, int], None] = lambda _call, _code: None


_failures = _Failures()


def on_failure(told: Callable[[str, int], None]) -> None:
    """`told(call, code)` hears of each call that fails, in the caller's thread. Not of codes that
    are answers: that a board or driver does not have something, that a wait is over.
    """
    _failures.told = told


_E = TypeVar("_E", bound=NvmlError)


def counted(error: _E) -> _E:
    """The error, which is told of first where it is no answer."""
    if not isinstance(error, NotSupported | NotFound) and error.code not in _ANSWER_CODES:
        _failures.told(error.call, error.code)
    return error


def call(name: str, *args: object, gpu: str = "") -> Any:
    """`pynvml.<name>(*args)`. NvmlError, of the kind that its code says, names call and GPU."""
    try:
        return getattr(pynvml, name)(*args)
    except pynvml.NVMLError as error:
        raise counted(translate(error.value, call=name, gpu=gpu)) from error


def translate(code: int, *, call: str, gpu: str) -> NvmlError:
    """The error for an NVML return value other than 0."""
    kind, message = _KINDS.get(code, (NvmlError, ""))
    return kind(message or _text(code), call=call, code=code, gpu=gpu)


def _text(code: int) -> str:
    try:
        return str(pynvml.nvmlErrorString(code))
    except pynvml.NVMLError:
        return "unknown error"


def optional(name: str, *args: object, gpu: str) -> Any | None:
    """The same, or None where board or driver do not have it. Other errors stay errors."""
    try:
        return call(name, *args, gpu=gpu)
    except (NotSupported, NotFound):
        return None


def probe(name: str, *args: object, gpu: str) -> Any | None:
    """The same, and None where the driver does not know an argument: an index of later drivers."""
    try:
        return getattr(pynvml, name)(*args)
    except pynvml.NVMLError as error:
        found = translate(error.value, call=name, gpu=gpu)
        if isinstance(found, NotSupported | NotFound):
            return None
        if found.code == pynvml.NVML_ERROR_INVALID_ARGUMENT:
            return None
        raise counted(found) from error


def activate(name: str, *args: object, gpu: str) -> None:
    """A call that answers with a status: whether what was asked for holds now. InUse and
    ResetRequired of the change itself, whether they come as status or as error.
    """
    try:
        status = int(call(name, *args, gpu=gpu))
    except NvmlError as error:
        if error.code not in _ACTIVATION:
            raise
        status = error.code
    if status in _ACTIVATION:
        kind, message = _ACTIVATION[status]
        raise kind(message, call=name, code=status, gpu=gpu)
    if status != pynvml.NVML_SUCCESS:
        raise counted(translate(status, call=name, gpu=gpu))
