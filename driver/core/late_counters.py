"""How a GPU whose partitions are placed at preparation is told to the scheduler: by sums alone.

Why it exists: a device without a start takes none of the counters that stand for one slot each. One
counter for all slots, and further sums where needed, must then admit exactly the sets of partitions
that some arrangement of an empty GPU can hold; that is gone through here, set by set. Whether every
admitted set can be *reached* is another question, which `late_binding.py` answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from api.resource.types import Consumption, CounterSet
from driver.core.counters import (
    Inexpressible,
    Limit,
    compute_limit,
    count_in,
    find_counters,
    slot_sets,
)
from driver.core.geometry import Geometry, MigProfile, Offer, bound

MEMORY_SLICES: Final = "memory-slices"

Counts = tuple[int, ...]
"""How many of each profile of the offer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LateCounters:
    """`limits`: the sums of one board, `memory-slices` first. `most`: how many devices each profile
    has, which is as many as fit an empty GPU.
    """

    geometry: Geometry
    limits: tuple[Limit, ...]
    most: Mapping[str, int]

    def weights(self, profile: MigProfile) -> tuple[int, ...]:
        """What one instance adds to each of `limits`."""
        position = self.geometry.profiles.index(profile)
        return tuple(x.weights[position] for x in self.limits)

    def counter_set(self, name: str) -> CounterSet:
        return CounterSet(name=name, counters=tuple((x.name, x.total) for x in self.limits))

    def partition(self, name: str, profile: MigProfile) -> Consumption:
        """What each device of `profile` takes from counter set `name`."""
        amounts = zip(self.limits, self.weights(profile), strict=True)
        taken = tuple((x.name, amount) for x, amount in amounts if amount)
        return Consumption(counter_set=name, counters=taken)

    def whole(self, name: str) -> Consumption:
        """What the full GPU takes: all slots, which excludes every partition."""
        return Consumption(counter_set=name, counters=((MEMORY_SLICES, self.geometry.slots),))


@lru_cache(maxsize=256)
def find_late_counters(offer: Offer) -> LateCounters | Inexpressible:
    """The fewest sums, greedily, that refuse every set that cannot be placed and nothing else."""
    exact = find_counters(bound(offer, late=False))
    if isinstance(exact, Inexpressible):
        return exact
    geometry = offer.geometry
    positions = [geometry.profiles.index(p) for p in offer.profiles]
    possible = _possible(offer, exact.limits, positions)
    most = [max(column) for column in zip(*possible, strict=True)]
    memory = Limit(
        name=MEMORY_SLICES,
        total=geometry.slots,
        weights=tuple(p.size for p in geometry.profiles),
    )
    others = [compute_limit(geometry), *exact.limits]
    chosen = [memory]
    impossible = {c for c in _vectors(most, memory, positions) if c not in possible}
    while impossible:
        refused = [{c for c in impossible if not _within(x, positions, c)} for x in others]
        best = max(range(len(others)), key=lambda i: len(refused[i]))
        if not refused[best]:
            break
        impossible -= refused[best]
        chosen.append(others[best])
    # Slots of which the starts waste some, or that differ in size from start to start.
    wrong = impossible or {c for c in possible if not all(_within(x, positions, c) for x in chosen)}
    if wrong:
        return Inexpressible(
            reason=f"sums cannot say that {_spell(offer, min(wrong))} together"
            f" {'do not fit' if impossible else 'fit'}; set binding to scheduler"
        )
    return LateCounters(
        geometry=geometry,
        limits=tuple(chosen),
        most=MappingProxyType({p.name: n for p, n in zip(offer.profiles, most, strict=True)}),
    )


def _possible(offer: Offer, limits: Sequence[Limit], positions: Sequence[int]) -> set[Counts]:
    """What the hardware holds in some arrangement; at least nothing at all."""
    packed = slot_sets(offer.geometry.slots, offer.profiles) or frozenset([0])
    counts = (tuple(count_in(s, i) for i in range(len(offer.profiles))) for s in packed)
    return {c for c in counts if all(_within(x, positions, c) for x in limits)}


def _within(limit: Limit, positions: Sequence[int], counts: Counts) -> bool:
    used = sum(limit.weights[p] * n for p, n in zip(positions, counts, strict=True))
    return used <= limit.total


def _vectors(most: Sequence[int], memory: Limit, positions: Sequence[int]) -> Iterator[Counts]:
    """All counts up to `most` that the slots' sum admits."""
    found: list[tuple[Counts, int]] = [((), memory.total)]
    for count, position in zip(most, positions, strict=True):
        size = memory.weights[position]
        found = [
            ((*counts, n), left - n * size)
            for counts, left in found
            for n in range(count + 1)
            if n * size <= left
        ]
    return (counts for counts, _ in found)


def _spell(offer: Offer, counts: Counts) -> str:
    named = zip(offer.profiles, counts, strict=True)
    return ", ".join(f"{n} x {p.name}" for p, n in named if n)
