"""Which boards and which GPU instances are on the node, for whoever weighs a signal.

Why it exists: a kernel line names an instance by an id that is used again; what it meant is known
from the hardware's last reading, which may be a minute old, and from the ledger, which knows each
instance from the moment it was made. What ended a short while ago is remembered: its last message
may come after it.

Must not know signals.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from driver.core.health.items import Identity, KnownGpu
from driver.core.ids import ClaimUID, GpuUuid
from driver.core.inventory import Inventory
from driver.core.ledger import Entry, Holding
from driver.core.snapshot import PciAddress
from driver.plugin.node import Hardware

_REMEMBERED: Final = 300.0
"""Seconds after its end for which an instance's place is known."""

Place = tuple[GpuUuid, int]


class Places:
    """Safe for several threads. `entries`: what the ledger holds."""

    def __init__(
        self,
        hardware: Hardware,
        *,
        entries: Callable[[], Mapping[ClaimUID, Entry]],
        boot_id: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hardware = hardware
        self._entries = entries
        self._boot_id = boot_id
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[Place, tuple[int, float]] = {}
        self._boards: dict[GpuUuid, str] = {}

    def identity(self) -> Identity:
        now = self._clock()
        with self._lock:
            for place, mask in self._current():
                self._seen[place] = mask, now
            self._seen = {
                place: (mask, at)
                for place, (mask, at) in self._seen.items()
                if now - at <= _REMEMBERED
            }
            return Identity(
                serials=dict(self._boards), places={k: mask for k, (mask, _) in self._seen.items()}
            )

    @property
    def inventory(self) -> Inventory | None:
        """Another object when another one is known."""
        return self._hardware.inventory

    def gpus(self) -> Mapping[GpuUuid, KnownGpu]:
        inventory = self._hardware.inventory
        gpus = inventory.gpus if inventory else {}
        return {
            uuid: KnownGpu(pci=g.pci, minor=g.minor, serial=g.serial or "")
            for uuid, g in gpus.items()
        }

    def addresses(self) -> Mapping[PciAddress, GpuUuid]:
        inventory = self._hardware.inventory
        return {g.pci: uuid for uuid, g in inventory.gpus.items()} if inventory else {}

    def minors(self) -> Mapping[int, GpuUuid]:
        inventory = self._hardware.inventory
        return {g.minor: uuid for uuid, g in inventory.gpus.items()} if inventory else {}

    def held(self) -> frozenset[str]:
        """UUIDs of the GPUs and partitions that claims of this boot have."""
        return frozenset(holding.uuid for holding in self._holdings())

    def holds(self, gpu: GpuUuid) -> bool:
        """Whether a claim of this boot has the GPU, or a part of it."""
        return any(holding.gpu == gpu for holding in self._holdings())

    def _holdings(self) -> Iterator[Holding]:
        """Of claims of this boot."""
        for entry in self._entries().values():
            if entry.boot_id == self._boot_id:
                yield from entry.holdings

    def _current(self) -> list[tuple[Place, int]]:
        found: list[tuple[Place, int]] = []
        inventory = self._hardware.inventory
        if inventory is not None:
            # A board that does not answer for a moment is still there.
            self._boards.update({u: g.serial or "" for u, g in inventory.gpus.items()})
            found += [
                ((gpu.uuid, instance.id), instance.placement.mask)
                for gpu in inventory.gpus.values()
                for instance in gpu.mig.instances
            ]
        found += [
            ((holding.gpu, holding.slot.made.instance), holding.slot.mask)
            for holding in self._holdings()
            if holding.slot is not None and holding.slot.made is not None
        ]
        return found
