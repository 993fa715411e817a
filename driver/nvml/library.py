"""The life of the NVML library in this process: load, initialise, ask, let go.

Why it exists: the library comes from the driver root, not from our image; it may be missing for a
while, and another version may be put in its place while we run. So it is loaded by full path, and
every failure to initialise forgets what was loaded: unmapped too, since the loader answers a path
that it has mapped with the old file, whatever lies there now.

Must not know what the answers are good for.
"""

from __future__ import annotations

import _ctypes
import ctypes
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pynvml

from driver.core.errors import DriverNotLoaded, LibraryMissing, NvmlError
from driver.core.snapshot import NodeSnapshot
from driver.nvml.calls import call
from driver.nvml.snapshot import take_snapshot
from driver.ports.nvml import PciTopology

_SONAME: Final = "libnvidia-ml.so.1"
_FOLDERS: Final = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
)


class NvmlLibrary:
    """Implements `driver.ports.nvml.GpuLibrary`. Calls are serialised: one snapshot at a time."""

    def __init__(
        self, *, driver_root: Path, topology: PciTopology, library: Path | None = None
    ) -> None:
        """`library`: the file to load; else it is searched below `driver_root` at each opening."""
        self._root = driver_root
        self._library = library
        self._topology = topology
        self._lock = threading.Lock()
        self._open = False

    def snapshot(self) -> NodeSnapshot:
        with self._lock:
            self._ensure_open()
            try:
                return take_snapshot(self._topology)
            except DriverNotLoaded:
                self._forget()
                raise

    def close(self) -> None:
        with self._lock:
            self._forget()

    def _ensure_open(self) -> None:
        if self._open:
            return
        _load(self._library or find_library(self._root))
        try:
            call("nvmlInit")
        except NvmlError:
            self._forget()
            raise
        self._open = True

    def _forget(self) -> None:
        """Shut down and unload the library: the next opening loads what is there then."""
        if self._open:
            self._open = False
            _quietly(pynvml.nvmlShutdown)
        _unload()


def find_library(root: Path) -> Path:
    """The library below a driver root. LibraryMissing names every folder that was searched."""
    for folder in _FOLDERS:
        if (found := root / folder / _SONAME).exists():
            return found
    searched = ", ".join(_FOLDERS)
    raise LibraryMissing(
        f"{_SONAME} is in none of {searched} below {root}; install the NVIDIA driver there, or"
        " set driver_root or nvml_library",
        call="dlopen",
        code=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
    )


def _load(path: Path) -> None:
    """Make pynvml use exactly this file: by itself it would search the image's loader path."""
    _unload()
    try:
        pynvml.nvmlLib = ctypes.CDLL(str(path))
    except OSError as error:
        raise LibraryMissing(
            f"{path} cannot be loaded: {error}",
            call="dlopen",
            code=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        ) from error


def _unload() -> None:
    """Safe only while no thread is inside the library; the lock of `NvmlLibrary` sees to that."""
    with pynvml.libLoadLock:
        library, pynvml.nvmlLib = pynvml.nvmlLib, None
        pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 - holds pointers into it
    if library is not None:
        _ctypes.dlclose(library._handle)  # noqa: SLF001 - ctypes never closes by itself


def _quietly(shutdown: Callable[[], object]) -> None:
    """A library that is already gone cannot be shut down, and need not be."""
    try:
        shutdown()
    except pynvml.NVMLError:
        return
