"""Reads the hardware, again and again: NVML may come late, go, and come back.

No failure here ends the process: the kubelet must be served meanwhile, and slices of devices that
are in use stay as they are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from driver.core.errors import NvmlError
from driver.core.inventory import build_inventory
from driver.core.snapshot import NodeSnapshot
from driver.observe.logs import Log
from driver.plugin.node import Hardware
from driver.plugin.supervise import Wakeup
from driver.ports.nvml import GpuLibrary

log = Log(__name__)


class Pauses(Protocol):
    """Growing waits between failures."""

    def next(self) -> float: ...

    def reset(self) -> None: ...


class Discovery:
    """`pci_gpus` counts NVIDIA display devices on the bus; `rescan` is in seconds."""

    def __init__(
        self,
        library: GpuLibrary,
        hardware: Hardware,
        *,
        pci_gpus: Callable[[], int],
        report: Callable[[str], None],
        failed: Callable[[NvmlError], None],
        rescan: float,
        pauses: Pauses,
        wakeup: Wakeup,
    ) -> None:
        self._library = library
        self._hardware = hardware
        self._pci_gpus = pci_gpus
        self._report = report
        self._tell_failure = failed
        self._rescan = rescan
        self._pauses = pauses
        self._wakeup = wakeup
        self._lost: tuple[str, ...] = ()

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self._wakeup.wait(self.look())
        self._library.close()

    def look(self) -> float:
        """One reading; seconds until the next one is due."""
        try:
            snapshot = self._library.snapshot()
        except NvmlError as error:
            self._tell_failure(error)
            return self._failed(str(error))
        if not snapshot.gpus and (on_bus := self._pci_gpus()):
            lost = "; ".join(lost.reason for lost in snapshot.lost)
            # Open handles of ours could keep a driver that is being replaced alive.
            self._library.close()
            return self._failed(
                f"NVML shows no GPU, the PCI bus shows {on_bus}; the driver has not taken them"
                f" (see dmesg){': ' + lost if lost else ''}"
            )
        self._tell_lost(snapshot)
        inventory = build_inventory(snapshot)
        if self._hardware.found(inventory):
            log.info("GPUs found", devices=list(inventory.devices))
        self._report("")
        self._pauses.reset()
        return self._rescan

    def _failed(self, problem: str) -> float:
        if self._hardware.failed(problem):
            log.error("GPUs cannot be read", reason=problem)
        self._report(problem)
        return self._pauses.next()

    def _tell_lost(self, snapshot: NodeSnapshot) -> None:
        lost = tuple(f"{each.where}: {each.reason}" for each in snapshot.lost)
        if lost != self._lost:
            for each in lost:
                log.error("GPU does not answer and is not offered", reason=each)
            self._lost = lost
