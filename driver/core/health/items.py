"""What is held against devices: items of evidence, and the value that holds all of them.

Why it exists: the state of a device is the worst of its open items, so a harmless event can never
hide a grave one, and what clears an item is asked of that item alone. Must not know any source, or
how signals change the value: `evidence.py` does that.

Times are seconds since the epoch by the node's clock. `last` is the newest sign; a proof counts
only if it is newer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from driver.core.devices import EVERY_SLOT
from driver.core.health.signals import FAMILIES, STRENGTH, Acknowledged, Family, Need, Scope, Source
from driver.core.ids import GpuUuid
from driver.core.snapshot import PciAddress

DAMAGED: Final = "evidence-damaged"
TOO_MANY: Final = "too-many-faults"
"""Stands for all that no room was left for."""
RELEASED: Final = "nvml-released"
"""We let go of NVML ourselves, for as long as somebody asked for."""
RECOVERY: Final = "recovery-action"
"""One name for all of them: the driver has one action at a time, and "none" ends it."""
MISSING: Final = "gpu-missing"
"""It was on the node, and NVML does not have it now."""
RESET_MARKS: Final = frozenset({RECOVERY, "gpu-lost", MISSING, "reset-required"})
"""States of a GPU that go with a reset alone: that one is in order again proves a reset."""
ROW_PENDING: Final = "row-remap-pending"
"""A memory row is replaced by a reset alone, so this is such a mark too, of a GPU that works."""
EVENTS: Final = frozenset({Source.KERNEL, Source.EVENTS})
"""These tell of a moment and cannot be asked again; the other sources look at a state."""


def is_hard(need: Need) -> bool:
    """No new claim may have the device, and preparing one that has it already is refused."""
    return STRENGTH[need] >= STRENGTH[Need.RESET]


class Kind(StrEnum):
    FAULT = "fault"
    UNKNOWN = "unknown"
    """It could not be looked at. With need PROBE a probe decides, and it withholds at once; else
    it withholds after a while, and a look that succeeds ends it."""


class Key(NamedTuple):
    """Signs with the same key are one item. What only passes by is apart, even under one name: it
    must neither start an item that withholds nor make its proofs look old.
    """

    kind: Kind
    source: Source
    scope: Scope
    name: str
    injected: bool = False
    passing: bool = False


class Sign(NamedTuple):
    """What is new when an item is seen again."""

    need: Need
    first: float
    last: float
    boot_id: str
    times: int
    detail: str
    place: str
    slots: int
    serial: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """`need`: the strongest that was ever seen while it is open. `slots`: the memory slots where
    the GPU instance of the scope lay when the first sign came; instance ids are used again.
    `serial`: of the board, where it could be read.
    `returns`: how often it came back soon after it had been cleared. `wish`: a probe may clear it,
    although it is only watched. `suspect`: most GPUs say the same at once, so the monitor may lie.
    `unasked`: its source is switched off, as the settings of this run have it; it is not stored.

    Proofs so far, of which those older than `last` do not count: `well`, the state was in order
    again; `reset`, the GPU was reset; `acknowledged`, by an operator; `overruled`, the GPU itself
    asks for no reset; `proved`: the GPUs whose probe passed, where it is about the whole node.
    """

    kind: Kind = Kind.FAULT
    source: Source
    scope: Scope
    name: str
    need: Need
    first: float
    last: float
    boot_id: str
    count: int = 1
    detail: str = ""
    place: str = ""
    injected: bool = False
    slots: int = EVERY_SLOT
    serial: str = ""
    returns: int = 0
    wish: bool = False
    suspect: bool = False
    unasked: bool = False
    well: float | None = None
    reset: float | None = None
    acknowledged: Acknowledged | None = None
    overruled: float | None = None
    proved: frozenset[GpuUuid] = frozenset()

    @property
    def key(self) -> Key:
        return Key(self.kind, self.source, self.scope, self.name, self.injected, self.passing)

    @property
    def family(self) -> Family:
        return FAMILIES[self.source]

    @property
    def weight(self) -> Need:
        """What it needs by what is known now: `need`, unless something newer says less."""
        if self.injected:
            return Need.NOTHING
        if self.need is Need.RESET and self.overruled is not None and self.overruled > self.last:
            return Need.WATCH if self.source is Source.DCGM else Need.PROBE
        return self.need

    @property
    def hard(self) -> bool:
        return self.kind is Kind.FAULT and is_hard(self.weight)

    @property
    def passing(self) -> bool:
        """Shown for a while, and withholds nothing."""
        return self.kind is Kind.FAULT and self.weight is Need.NOTHING

    @property
    def of_event(self) -> bool:
        """Nothing can be asked again whether it still holds."""
        return self.source in EVENTS or self.name == TOO_MANY

    @property
    def over(self) -> bool:
        """Nobody will look again whether it still holds."""
        return self.of_event or self.unasked


class Sort(NamedTuple):
    """A fault by its name, whoever reports it and wherever on the GPU."""

    gpu: GpuUuid | None
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """When such a fault ended; if it is back soon, it has come `returns` times more."""

    at: float
    returns: int


class Sighting(NamedTuple):
    """An application's error at one place; alone it says nothing about the GPU."""

    gpu: GpuUuid
    name: str
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """Probes of one scope since the last that passed."""

    count: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownGpu:
    """A GPU of this node as it was last read. `minor`: in this boot, None if that was in another;
    `serial` is empty where it cannot be read.
    """

    pci: PciAddress
    minor: int | None
    serial: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that is known. `clock`: not older than anything in it, to notice a clock set back.
    `sightings`: when each was last seen. `gpus`: those of the node, there or missing.
    """

    boot_id: str = ""
    clock: float = 0.0
    items: Mapping[Key, Item] = field(default_factory=dict)
    cleared: Mapping[Sort, Cleared] = field(default_factory=dict)
    sightings: Mapping[Sighting, float] = field(default_factory=dict)
    tries: Mapping[Scope, Try] = field(default_factory=dict)
    gpus: Mapping[GpuUuid, KnownGpu] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What this process has read of the node. `serials`: of each GPU's board, empty where it cannot
    be read. `places`: the slots of each GPU instance, also of those that ended a short while ago.
    """

    serials: Mapping[GpuUuid, str] = field(default_factory=dict)
    places: Mapping[tuple[GpuUuid, int], int] = field(default_factory=dict)

    def slots(self, scope: Scope) -> int:
        """Where an instance lies; the whole GPU for one that nobody knows."""
        if scope.gpu is None or scope.gi is None:
            return EVERY_SLOT
        return self.places.get((scope.gpu, scope.gi), EVERY_SLOT)
