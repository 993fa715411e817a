"""NVML's handle of each GPU, by UUID, for as long as the library is open.

Why it exists: NVML finds a GPU by its UUID by asking all of them, which takes seconds where many
threads do it at once. A handle is asked for once, or comes from the last snapshot.
"""

from __future__ import annotations

from typing import Any

from driver.core.ids import GpuUuid
from driver.nvml.calls import call


class Handles:
    """For many threads: at worst two of them ask for the same handle."""

    def __init__(self) -> None:
        self._known: dict[GpuUuid, Any] = {}

    def of(self, gpu: GpuUuid) -> Any:
        """NotFound where NVML has no such GPU."""
        handle = self._known.get(gpu)
        if handle is None:
            handle = call("nvmlDeviceGetHandleByUUID", gpu, gpu=gpu)
            self._known[gpu] = handle
        return handle

    def keep(self, gpu: GpuUuid, handle: Any) -> None:
        self._known[gpu] = handle

    def drop(self, gpu: GpuUuid) -> None:
        """After an error: the GPU may have been reset, or replaced."""
        self._known.pop(gpu, None)

    def clear(self) -> None:
        self._known.clear()
