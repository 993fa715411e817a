"""The one table that gives NVML's return codes a meaning."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pynvml
import pytest

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
)
from driver.nvml.calls import call, on_failure, optional, probe
from driver.nvml.library import find_library
from driver.nvml.session import load

KINDS = {
    "UNINITIALIZED": DriverNotLoaded,
    "INVALID_ARGUMENT": NvmlError,
    "NOT_SUPPORTED": NotSupported,
    "NO_PERMISSION": NvmlError,
    "ALREADY_INITIALIZED": NvmlError,
    "NOT_FOUND": NotFound,
    "INSUFFICIENT_SIZE": NvmlError,
    "INSUFFICIENT_POWER": NvmlError,
    "DRIVER_NOT_LOADED": DriverNotLoaded,
    "TIMEOUT": NvmlError,
    "IRQ_ISSUE": NvmlError,
    "LIBRARY_NOT_FOUND": LibraryMissing,
    "FUNCTION_NOT_FOUND": NotSupported,
    "CORRUPTED_INFOROM": NvmlError,
    "GPU_IS_LOST": GpuLost,
    "RESET_REQUIRED": GpuLost,
    "OPERATING_SYSTEM": NvmlError,
    "LIB_RM_VERSION_MISMATCH": DriverMismatch,
    "IN_USE": InUse,
    "MEMORY": NvmlError,
    "NO_DATA": NvmlError,
    "INSUFFICIENT_RESOURCES": NoResources,
    "ARGUMENT_VERSION_MISMATCH": NotSupported,
    "UNKNOWN": NvmlError,
}


@pytest.fixture
def handle(make_node):
    """Of GPU 1, with the library of its node loaded."""
    node = make_node("h100x2")
    node.snapshot()
    return node.machine, pynvml.nvmlDeviceGetHandleByIndex(1)


@pytest.mark.parametrize("name", KINDS)
def test_each_code_has_its_type_and_the_message_names_call_and_gpu(handle, name) -> None:
    machine, gpu = handle
    code = getattr(pynvml, f"NVML_ERROR_{name}")
    with (
        machine.rule("nvmlDeviceGetUUID", ret=code),
        pytest.raises(NvmlError) as caught,
    ):
        call("nvmlDeviceGetUUID", gpu, gpu="GPU 1")
    error = caught.value
    assert type(error) is KINDS[name]
    assert (error.call, error.code, error.gpu) == ("nvmlDeviceGetUUID", code, "GPU 1")
    assert str(error).startswith("nvmlDeviceGetUUID for GPU 1: ")
    assert str(error).endswith(f" (NVML code {code})")
    assert isinstance(error.__cause__, pynvml.NVMLError)


@pytest.fixture
def told() -> Iterator[list[tuple[str, int]]]:
    heard: list[tuple[str, int]] = []
    on_failure(lambda name, code: heard.append((name, code)))
    yield heard
    on_failure(lambda _name, _code: None)


@pytest.mark.parametrize("name", KINDS)
def test_a_failed_call_is_counted_once_and_an_answer_is_not(handle, told, name) -> None:
    machine, gpu = handle
    code = getattr(pynvml, f"NVML_ERROR_{name}")
    answers = {
        "NOT_SUPPORTED",
        "FUNCTION_NOT_FOUND",
        "ARGUMENT_VERSION_MISMATCH",
        "NOT_FOUND",
        "TIMEOUT",
        "CORRUPTED_INFOROM",
    }
    with machine.rule("nvmlDeviceGetUUID", ret=code):
        for ask in (call, optional, probe):
            with suppress(NvmlError):
                ask("nvmlDeviceGetUUID", gpu, gpu="GPU 1")
    times = 0 if name in answers else 2 if name == "INVALID_ARGUMENT" else 3
    assert told == [("nvmlDeviceGetUUID", code)] * times


def test_a_library_that_is_not_there_is_a_failed_call_too(told, tmp_path) -> None:
    with pytest.raises(LibraryMissing):
        find_library(tmp_path)
    with pytest.raises(LibraryMissing):
        load(tmp_path / "no.so")
    assert told == [("dlopen", pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)] * 2


def test_a_code_of_a_later_driver_is_an_error_like_any_other(handle) -> None:
    machine, gpu = handle
    with machine.rule("nvmlDeviceGetName", ret=777), pytest.raises(NvmlError) as caught:
        call("nvmlDeviceGetName", gpu, gpu="GPU 1")
    assert type(caught.value) is NvmlError
    assert "(NVML code 777)" in str(caught.value)


def test_an_error_can_be_told_even_while_no_library_is_loaded(make_node) -> None:
    make_node().library.close()
    with pytest.raises(DriverNotLoaded, match=r"^nvmlDeviceGetCount: NVML is not initialised"):
        call("nvmlDeviceGetCount")


@pytest.mark.parametrize("name", KINDS)
def test_only_absence_is_none(handle, name) -> None:
    machine, gpu = handle
    code = getattr(pynvml, f"NVML_ERROR_{name}")
    with machine.rule("nvmlDeviceGetSerial", ret=code):
        if KINDS[name] in {NotSupported, NotFound}:
            assert optional("nvmlDeviceGetSerial", gpu, gpu="GPU 1") is None
        else:
            with pytest.raises(KINDS[name], match="nvmlDeviceGetSerial for GPU 1"):
                optional("nvmlDeviceGetSerial", gpu, gpu="GPU 1")
