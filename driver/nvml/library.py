"""NVML as the plugin holds it: where the library is found, and what can be asked of it.

Must not know what the answers are good for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pynvml

from driver import rooted
from driver.core.errors import LibraryMissing
from driver.core.snapshot import NodeSnapshot
from driver.nvml.boards import Boards
from driver.nvml.calls import counted
from driver.nvml.session import Session
from driver.nvml.snapshot import take_snapshot
from driver.ports.nvml import PciTopology

_SONAME: Final = "libnvidia-ml.so.1"
MAX_RELEASE: Final = 3600.0
"""Seconds; a window that nobody ends must not leave the GPUs unwatched for long."""


class NvmlLibrary:
    """Implements `driver.ports.nvml.GpuLibrary`, for many threads at once.

    One a process, as pynvml holds one library; `NvmlPartitions` shares its session and boards.
    """

    def __init__(
        self,
        *,
        driver_root: Path,
        topology: PciTopology,
        library: Path | None = None,
        patience: float = 30.0,
    ) -> None:
        """`library`: the file to load; else it is searched below `driver_root` at each opening.
        `patience`: see `Session`.
        """
        self.session = Session(lambda: library or find_library(driver_root), patience=patience)
        self.boards = Boards()
        self._topology = topology

    def snapshot(self) -> NodeSnapshot:
        with self.session.inside():
            return take_snapshot(self._topology, self.boards, self.session.handles)

    def close(self) -> None:
        self.session.close()

    @property
    def held(self) -> bool:
        """Whether NVML is open, which keeps a GPU from being reset."""
        return self.session.held

    def release(self, seconds: float) -> None:
        """Let go of every handle and take none for `seconds`, an hour at most: somebody resets a
        GPU. Calls are refused with Released until then, or until `resume`.
        """
        self.session.release(min(seconds, MAX_RELEASE))

    def resume(self) -> None:
        self.session.resume()

    def close_idle(self, seconds: float) -> float:
        return self.session.close_idle(seconds)


def find_library(root: Path) -> Path:
    """The library below a driver root. LibraryMissing names every folder that was searched."""
    try:
        return rooted.find_library(root, _SONAME)
    except rooted.NotInDriverRoot as error:
        missing = LibraryMissing(
            f"{error} or nvml_library", call="dlopen", code=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
        )
        raise counted(missing) from error
