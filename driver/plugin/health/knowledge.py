"""What a sign is judged by: who sits where, the driver's branch, and what the GPUs themselves ask.

Why it exists: NVML's map of the GPUs is kept while it fails, the one from before our start is good
until it answers, the kernel's log has its own, and the recovery actions are as old as the last
look. As long as none of it changes it stays the same object, because what was judged is remembered
by it.

Must not know signs, or evidence.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from driver.core.health.items import KnownGpu
from driver.core.health.kernel.catalogue import Catalogue
from driver.core.health.kernel.verdict_known import Known
from driver.core.health.readings.values import GpuReadings, NodeReadings
from driver.core.ids import GpuUuid
from driver.core.inventory import Inventory
from driver.core.snapshot import PciAddress
from driver.plugin.health.places import Places

Named = Mapping[PciAddress, GpuUuid]
Stored = Mapping[GpuUuid, KnownGpu]


class ReadAt(NamedTuple):
    """When a GPU's recovery action was read: by the time of day, and by the clock of pauses."""

    at: float
    uptime: float


class Knowledge:
    """Safe for several threads. `stored`: the GPUs that the node had when they were last read,
    another object when it is another value.
    """

    def __init__(
        self,
        places: Places,
        catalogue: Catalogue,
        *,
        stored: Callable[[], Stored],
    ) -> None:
        self._places = places
        self._stored = stored
        self._known = Known(catalogue=catalogue)
        self._lock = threading.Lock()
        self._mapped: tuple[Inventory | None, Named | None, Stored | None] = (None, None, None)
        self._gpus: dict[PciAddress, GpuUuid] = {}
        self._minors: dict[int, GpuUuid] = {}
        self._read_at: dict[GpuUuid, ReadAt] = {}

    @property
    def branch(self) -> int | None:
        """The driver's, as the poll last read it."""
        return self._known.branch

    @property
    def read_at(self) -> Mapping[GpuUuid, ReadAt]:
        """When each GPU's recovery action was last read."""
        return self._read_at

    def now(self, named: Named) -> Known:
        """`named`: where the GPUs are, as the log itself has said."""
        inventory, stored = self._places.inventory, self._stored()
        known = self._mapped
        if inventory is not known[0] or named is not known[1] or stored is not known[2]:
            with self._lock:
                self._mapped = inventory, named, stored
                self._gpus.update(self._places.addresses())
                self._minors.update(self._places.minors())
                had = {gpu.pci: uuid for uuid, gpu in stored.items()}
                numbered = {g.minor: uuid for uuid, g in stored.items() if g.minor is not None}
                self._known = replace(
                    self._known,
                    gpus={**had, **named, **self._gpus},
                    minors={**numbered, **self._minors},
                )
        return self._known

    def looked(self, found: NodeReadings, *, now: float, uptime: float) -> None:
        """The poll has read the GPUs."""
        with self._lock:
            actions, read_at = dict(self._known.actions), dict(self._read_at)
            for gpu, readings in found.gpus.items():
                if isinstance(readings, GpuReadings) and isinstance(readings.recovery, int):
                    actions[gpu] = readings.recovery
                    if (age := now - readings.at) >= 0:  # else the clock was set back meanwhile
                        read_at[gpu] = ReadAt(readings.at, uptime - age)
            self._read_at = read_at
            if (found.branch, actions) != (self._known.branch, self._known.actions):
                self._known = replace(self._known, branch=found.branch, actions=actions)
