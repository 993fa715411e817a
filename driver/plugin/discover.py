"""Reads the hardware, again and again: NVML may come late, go, and come back.

No failure here ends the process: the kubelet must be served meanwhile, and slices of devices that
are in use stay as they are.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from driver.core.boards import check_binding
from driver.core.choices import Choices
from driver.core.errors import ConfigError, NvmlError
from driver.core.ids import ClaimUID
from driver.core.inventory import Inventory, build_inventory
from driver.core.ledger import Entry
from driver.core.live import find_foreign
from driver.core.modes import unmatched
from driver.core.snapshot import NodeSnapshot, with_known_geometry, with_lost
from driver.observe.logs import Log
from driver.plugin.node import Hardware
from driver.plugin.supervise import Wakeup
from driver.ports.nvml import GpuLibrary

log = Log(__name__)

_MOMENTS: Final = 2.0
"""Seconds from a change of partitions to the look that finds whose it was."""


class Pauses(Protocol):
    """Growing waits between failures."""

    def next(self) -> float: ...

    def reset(self) -> None: ...


class Discovery:
    """`pci_gpus` counts NVIDIA display devices on the bus; `rescan` is in seconds. `refuse` is told
    of a choice that does not fit the hardware. `entries`: what the ledger holds. `idle`: seconds
    after which NVML is let go of when nobody asks for anything, 0: never.
    """

    def __init__(
        self,
        library: GpuLibrary,
        hardware: Hardware,
        *,
        pci_gpus: Callable[[], int],
        report: Callable[[str], None],
        rescan: float,
        choices: Choices,
        entries: Callable[[], Mapping[ClaimUID, Entry]],
        boot_id: str,
        refuse: Callable[[ConfigError], None],
        pauses: Pauses,
        wakeup: Wakeup,
        idle: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._library = library
        self._hardware = hardware
        self._pci_gpus = pci_gpus
        self._report = report
        self._rescan = rescan
        self._choices = choices
        self._entries = entries
        self._boot_id = boot_id
        self._refuse = refuse
        self._pauses = pauses
        self._wakeup = wakeup
        self._idle = idle
        self._clock = clock
        self._lost: tuple[str, ...] = ()
        self._at_once = False
        self._asked_for: float | None = None

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self._pause(self.look(), stop)
        self._library.close()

    def again(self) -> None:
        """What the ledger explains is another than it was: look at once."""
        self._at_once = True
        self._wakeup.wake()

    def cut(self) -> None:
        """A GPU was cut up or put together, mostly by us, which the ledger explains: one look for
        many of them, and none in the middle of a preparation.
        """
        if self._asked_for is None:
            self._asked_for = self._clock() + _MOMENTS
            self._wakeup.wake()

    def _pause(self, seconds: float, stop: threading.Event) -> None:
        """Until the next look is due, or somebody wants one. NVML is let go of meanwhile."""
        due = self._clock() + seconds
        while not stop.is_set() and not self._at_once:
            at = due if self._asked_for is None else min(due, self._asked_for)
            if (rest := at - self._clock()) <= 0:
                break
            if self._idle:
                rest = min(rest, self._library.close_idle(self._idle))
            self._wakeup.wait(rest)
        self._at_once, self._asked_for = False, None

    def look(self) -> float:
        """One reading; seconds until the next one is due."""
        entries = self._entries()
        try:
            snapshot = self._library.snapshot()
        except NvmlError as error:
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
        known = self._hardware.inventory
        before = known.gpus if known else {}
        snapshot = with_lost(with_known_geometry(snapshot, before), before)
        try:
            inventory = build_inventory(snapshot, self._choices)
            check_binding(inventory.boards, self._choices.binding)
        except ConfigError as error:
            # Only a human can mend it; a plugin that guesses would publish what nobody asked for.
            self._refuse(error)
            return self._failed(str(error))
        # Of both moments: what is made or taken apart while we read is ours all the same. What an
        # earlier boot made is gone, so it does not explain what is there now.
        both = [*entries.values(), *self._entries().values()]
        ours = [entry for entry in both if entry.boot_id == self._boot_id]
        if self._hardware.found(inventory, find_foreign(inventory, ours)):
            self._tell_found(inventory)
        self._report("")
        self._pauses.reset()
        return self._rescan

    def _failed(self, problem: str) -> float:
        if self._hardware.failed(problem):
            log.error("GPUs cannot be read", reason=problem)
        self._report(problem)
        return self._pauses.next()

    def _tell_found(self, inventory: Inventory) -> None:
        modes = {uuid: assigned.mode.value for uuid, assigned in inventory.modes.items()}
        log.info("GPUs found", modes=modes, devices=len(inventory.devices))
        for uuid, assigned in inventory.modes.items():
            if assigned.withheld_reason:
                log.warning("GPU is withheld", gpu=uuid, reason=assigned.withheld_reason)
        for rule in unmatched([*inventory.gpus.values()], self._choices.rules):
            log.warning("rule fits no GPU of this node", rule=str(rule))
        for uuid, reason in inventory.refused.items():
            log.warning("GPU is published without partitions", gpu=uuid, reason=reason)
        if inventory.unfound:
            log.warning("no GPU that answers has these MIG profiles", profiles=inventory.unfound)

    def _tell_lost(self, snapshot: NodeSnapshot) -> None:
        lost = tuple(f"{each.where}: {each.reason}" for each in snapshot.lost)
        if lost != self._lost:
            for each in lost:
                log.error("GPU does not answer", reason=each)
            self._lost = lost
