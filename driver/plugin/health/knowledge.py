"""What a sign is judged by: who sits where, the driver's branch, and what the GPUs themselves ask.

Why it exists: NVML's map of the GPUs is kept while it fails, the kernel's log has its own, and the
recovery actions are as old as the last look. As long as none of it changes it stays the same
object, because what was judged is remembered by it.

Must not know signs, or evidence.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace

from driver.core.health.kernel.catalogue import Catalogue
from driver.core.health.kernel.verdict_known import Known
from driver.core.health.readings.values import GpuReadings, NodeReadings
from driver.core.ids import GpuUuid
from driver.core.inventory import Inventory
from driver.core.snapshot import PciAddress
from driver.plugin.health.places import Places

Named = Mapping[PciAddress, GpuUuid]


class Knowledge:
    """Safe for several threads."""

    def __init__(self, places: Places, catalogue: Catalogue) -> None:
        self._places = places
        self._known = Known(catalogue=catalogue)
        self._lock = threading.Lock()
        self._mapped: tuple[Inventory | None, Named | None] = (None, None)
        self._read_at: dict[GpuUuid, float] = {}

    @property
    def branch(self) -> int | None:
        """The driver's, as the poll last read it."""
        return self._known.branch

    @property
    def read_at(self) -> Mapping[GpuUuid, float]:
        """When each GPU's recovery action was last read."""
        return self._read_at

    def now(self, named: Named) -> Known:
        """`named`: where the GPUs are, as the log itself has said."""
        inventory = self._places.inventory
        if inventory is not self._mapped[0] or named is not self._mapped[1]:
            with self._lock:
                self._mapped = inventory, named
                gpus = {**named, **self._known.gpus, **self._places.addresses()}
                minors = {**self._known.minors, **self._places.minors()}
                self._known = replace(self._known, gpus=gpus, minors=minors)
        return self._known

    def looked(self, found: NodeReadings) -> None:
        """The poll has read the GPUs."""
        with self._lock:
            actions, read_at = dict(self._known.actions), dict(self._read_at)
            for gpu, readings in found.gpus.items():
                if isinstance(readings, GpuReadings) and isinstance(readings.recovery, int):
                    actions[gpu], read_at[gpu] = readings.recovery, readings.at
            self._read_at = read_at
            if (found.branch, actions) != (self._known.branch, self._known.actions):
                self._known = replace(self._known, branch=found.branch, actions=actions)
