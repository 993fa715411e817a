"""The few functions of libcuda that a probe calls, through ctypes, with errors as exceptions.

Must not know what is computed. Standard library only: it is part of the child.
"""

from __future__ import annotations

import ctypes as c

_POINTER = c.c_uint64
"""A device address, which is 64 bit whatever the host's pointers are."""

_SIGNATURES: dict[str, list[object]] = {
    "cuInit": [c.c_uint],
    "cuDeviceGetCount": [c.POINTER(c.c_int)],
    "cuDeviceGet": [c.POINTER(c.c_int), c.c_int],
    "cuDeviceGetName": [c.c_char_p, c.c_int, c.c_int],
    "cuDevicePrimaryCtxRetain": [c.POINTER(c.c_void_p), c.c_int],
    "cuDevicePrimaryCtxRelease_v2": [c.c_int],
    "cuCtxSetCurrent": [c.c_void_p],
    "cuCtxSynchronize": [],
    "cuMemAlloc_v2": [c.POINTER(_POINTER), c.c_size_t],
    "cuMemFree_v2": [_POINTER],
    "cuMemcpyHtoD_v2": [_POINTER, c.c_char_p, c.c_size_t],
    "cuMemcpyDtoH_v2": [c.c_void_p, _POINTER, c.c_size_t],
    "cuModuleLoadData": [c.POINTER(c.c_void_p), c.c_char_p],
    "cuModuleUnload": [c.c_void_p],
    "cuModuleGetFunction": [c.POINTER(c.c_void_p), c.c_void_p, c.c_char_p],
    "cuLaunchKernel": [
        c.c_void_p,
        *[c.c_uint] * 7,  # grid, block, bytes of shared memory
        c.c_void_p,
        c.POINTER(c.c_void_p),
        c.POINTER(c.c_void_p),
    ],
}


class CudaError(Exception):
    """A call answered anything but success."""

    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(f"{call} answered {name} ({code})")
        self.call = call
        self.code = code
        self.name = name


class LibraryUnusable(Exception):
    """libcuda cannot be loaded, or lacks a function."""


class Cuda:
    """libcuda of one path. Calls go by name, as `cuda.call("cuInit", 0)`."""

    def __init__(self, path: str) -> None:
        try:
            self._library = c.CDLL(path)
            for name, arguments in _SIGNATURES.items():
                getattr(self._library, name).argtypes = arguments
        except (OSError, AttributeError) as error:
            raise LibraryUnusable(str(error)) from error

    def call(self, name: str, *arguments: object) -> None:
        code: int = getattr(self._library, name)(*arguments)
        if code:
            raise CudaError(name, code, self._name(code))

    def _name(self, code: int) -> str:
        """Of a code that this libcuda does not know there is the number alone."""
        text = c.c_char_p()
        look_up = getattr(self._library, "cuGetErrorName", None)
        if look_up is None or look_up(c.c_int(code), c.byref(text)) or not text.value:
            return f"CUDA error {code}"
        return text.value.decode(errors="replace")
