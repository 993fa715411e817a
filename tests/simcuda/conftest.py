"""The simulated CUDA driver in the test's own process, as fresh as in a new one."""

from __future__ import annotations

import ctypes as c
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pynvml as n
import pytest

from driver.cuda import api
from hack.simcuda import testing
from hack.simcuda.build import library_path
from hack.simnvml.testing import make_machine, preload, shut_down

__all__ = ["make_machine"]


@dataclass(frozen=True, slots=True)
class Calls:
    """Short forms. Pointers are declared as the production code declares them."""

    lib: c.CDLL

    def device(self, ordinal: int = 0) -> c.c_int:
        device = c.c_int()
        assert self.lib.cuDeviceGet(c.byref(device), ordinal) == 0
        return device

    def context(self, ordinal: int = 0) -> c.c_void_p:
        context = c.c_void_p()
        assert self.lib.cuDevicePrimaryCtxRetain(c.byref(context), self.device(ordinal)) == 0
        assert self.lib.cuCtxSetCurrent(context) == 0
        return context

    def memory(self, size: int) -> c.c_uint64:
        at = c.c_uint64()
        assert self.lib.cuMemAlloc_v2(c.byref(at), size) == 0
        return at

    def function(self, ptx: bytes, entry: bytes) -> c.c_void_p:
        module, function = c.c_void_p(), c.c_void_p()
        assert self.lib.cuModuleLoadData(c.byref(module), ptx) == 0
        assert self.lib.cuModuleGetFunction(c.byref(function), module, entry) == 0
        return function

    def launch(self, function: c.c_void_p, at: c.c_uint64, blocks: int, rounds: int) -> int:
        count = c.c_uint32(rounds)
        parameters = (c.c_void_p * 2)(c.addressof(at), c.addressof(count))
        grid = (blocks, 1, 1, 256, 1, 1, 0)
        return int(self.lib.cuLaunchKernel(function, *grid, None, parameters, None))

    def uuids(self) -> list[str]:
        """Of every device, as NVML writes them, without the prefix."""
        count = c.c_int()
        assert self.lib.cuDeviceGetCount(c.byref(count)) == 0
        found = []
        for ordinal in range(count.value):
            raw = c.create_string_buffer(16)
            assert self.lib.cuDeviceGetUuid_v2(raw, ordinal) == 0
            found.append(raw.raw.hex())
        return found

    def name(self, ordinal: int = 0) -> str:
        text = c.create_string_buffer(100)
        assert self.lib.cuDeviceGetName(text, 100, ordinal) == 0
        return text.value.decode()


@pytest.fixture
def cuda(monkeypatch) -> Iterator[Calls]:
    """Nothing is initialised; CUDA_VISIBLE_DEVICES is put back afterwards."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    api.Cuda(str(library_path()))  # every function that production calls is there
    library = testing.load()
    for name, arguments in api._SIGNATURES.items():
        getattr(library, name).argtypes = arguments
    yield Calls(library)
    testing.forget()


@pytest.fixture
def nvml(make_machine) -> Iterator[Any]:
    preload()
    yield n
    shut_down()
