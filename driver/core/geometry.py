"""Where partitions of one board can lie: slots, profiles, starts, all of it as NVML reported it.

Why it exists: a MIG profile is not a size. It may start at some slots only, so two boards with
equal memory can hold different sets of partitions. Must not know boards by name: a table of models
is wrong for the next driver, and names differ by total memory on one chip.

Slots are NVML's memory-slice axis: 8 on data-centre boards, 4 on smaller ones, 12 where the unit is
a third of the smallest partition. A set of slots is an int, bit `i` for slot `i`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Self

from driver.core.errors import ConfigError
from driver.core.names import profile_label


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Placement:
    """`size` slots from `start` on."""

    start: int
    size: int

    @property
    def mask(self) -> int:
        return ((1 << self.size) - 1) << self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class MigProfile:
    """One GPU instance profile. `index` asks NVML for it, `id` creates it; the two differ.

    `max_instances` is how many of it fit on an empty GPU. Engines that NVML does not report are 0.
    """

    index: int
    id: int
    name: str
    compute_slices: int
    memory_mib: int
    max_instances: int
    placements: tuple[Placement, ...]
    multiprocessors: int = 0
    copy_engines: int = 0
    decoders: int = 0
    encoders: int = 0
    jpeg: int = 0
    ofa: int = 0

    @property
    def label(self) -> str:
        return profile_label(self.name)

    @property
    def size(self) -> int:
        """Slots of one instance; 0 for a profile that can be placed nowhere."""
        return max((p.size for p in self.placements), default=0)

    @property
    def starts(self) -> tuple[int, ...]:
        return tuple(sorted(p.start for p in self.placements))

    @property
    def is_variant(self) -> bool:
        """A base profile with more, fewer or other engines: `+me`, `-me`, `+gfx`, `+me.all`."""
        return "+" in self.name or "-" in self.name

    def mask(self, start: int) -> int:
        """The slots of the instance at `start`. KeyError where it cannot lie there."""
        for placement in self.placements:
            if placement.start == start:
                return placement.mask
        raise KeyError(f"{self.name} cannot start at slot {start}, only at {list(self.starts)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """One board. Hashable, with the hash kept: it is the key of every memo in this package."""

    slots: int
    profiles: tuple[MigProfile, ...]
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.slots, self.profiles)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def all_slots(self) -> int:
        return (1 << self.slots) - 1

    @property
    def base(self) -> tuple[MigProfile, ...]:
        """The profiles that cut the chip; the others are variants of them."""
        return tuple(p for p in self.profiles if not p.is_variant)

    @property
    def compute_slices(self) -> int:
        """Of the whole board, as its largest profile has them."""
        return max((p.compute_slices for p in self.profiles), default=0)

    def profile(self, name: str) -> MigProfile:
        """KeyError where the board has no such profile."""
        for profile in self.profiles:
            if profile.name == name:
                return profile
        raise KeyError(f"no MIG profile {name}; there are {', '.join(names(self.profiles))}")

    def is_whole(self, profile: MigProfile) -> bool:
        """Covers every slot, as `7g` does: the same hardware as the full GPU, in MIG mode."""
        return profile.size == self.slots


def names(profiles: Iterable[MigProfile]) -> list[str]:
    return [p.name for p in profiles]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The profiles of one board that are published, smallest first. Made by `offers`.

    `late`: the start is chosen at preparation. Then the devices of a profile are counted through,
    and wherever this package speaks of the start of a device, that ordinal stands for it.
    """

    geometry: Geometry
    profiles: tuple[MigProfile, ...]
    late: bool = False
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        of = (self.geometry, tuple(names(self.profiles)), self.late)
        object.__setattr__(self, "_hash", hash(of))

    def __hash__(self) -> int:
        return self._hash

    @classmethod
    def of(cls, geometry: Geometry, profiles: Iterable[MigProfile]) -> Self:
        """In the order of size, compute, base before variant, NVML index."""
        ordered = sorted(profiles, key=lambda p: (p.size, p.compute_slices, p.is_variant, p.index))
        return cls(geometry=geometry, profiles=tuple(ordered))


def offers(boards: Sequence[Geometry], listed: Sequence[str] | None = None) -> tuple[Offer, ...]:
    """What each board of the node publishes: of `listed` what it has, or its default profiles.

    The default is every base profile that is smaller than the board. ConfigError for a listed name
    that no board has; on a mixed node one board is enough.
    """
    known = {p.name: None for board in boards for p in board.profiles}
    for name in listed or ():
        if name not in known:
            raise ConfigError(
                f"MIG profile {name!r} is listed, but no GPU of this node has it;"
                f" there are {', '.join(known) or 'no MIG profiles at all'}"
            )
    chosen = None if listed is None else frozenset(listed)
    return tuple(_offer(board, chosen) for board in boards)


@lru_cache(maxsize=256)
def _offer(geometry: Geometry, listed: frozenset[str] | None) -> Offer:
    """One object for equal boards, so that later look-ups compare by identity."""
    if listed is None:
        return Offer.of(geometry, (p for p in geometry.base if not geometry.is_whole(p)))
    return Offer.of(geometry, (p for p in geometry.profiles if p.name in listed))


@lru_cache(maxsize=256)
def bound(offer: Offer, *, late: bool) -> Offer:
    """The same profiles, with that binding; one object for equal offers."""
    return offer if offer.late is late else replace(offer, late=late)


def free_starts(profile: MigProfile, occupied: int) -> tuple[int, ...]:
    """Where `profile` meets no slot of `occupied`, ascending."""
    return tuple(sorted(p.start for p in profile.placements if not p.mask & occupied))
