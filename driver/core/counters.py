"""Counters that make the scheduler admit exactly what the hardware can hold: `Offer -> Counters`.

Why it exists: the scheduler knows no geometry, only sums. One counter a slot says "no overlap"; all
else that the hardware limits is checked here by going through every set of partitions that the
slots allow, and a further counter is added only where some set of them is impossible. Few counters
are worth the search: the scheduler walks all counters of a pool for each candidate.

The hardware's rule: partitions do not overlap; compute slices and each kind of engine sum up to no
more than the board has; no profile exceeds its instance count. NVML does not report what a board
has, so it is taken from what it says fits: `max_instances` of any one profile, and any set of base
profiles, because those are how the chip is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from api.resource.limits import MAX_COUNTERS_PER_SET
from api.resource.types import Consumption, CounterSet
from driver.core.geometry import Geometry, MigProfile, Offer

_FIELD: Final = 6
"""Bits of one profile's count in a packed vector of counts; a set has at most 32 partitions."""
_MOST_SETS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Sum of `weights` over the partitions of a GPU <= `total`.

    One weight for each profile of the *geometry*, in its order: an instance of a profile that is no
    longer offered still uses engines.
    """

    name: str
    total: int
    weights: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """The counters of one board: `memory-slice-<i>` for each slot, and `limits` beside them."""

    geometry: Geometry
    limits: tuple[Limit, ...]

    def counter_set(self, name: str) -> CounterSet:
        slots = [(memory_slice(i), 1) for i in range(self.geometry.slots)]
        return CounterSet(name=name, counters=(*slots, *((x.name, x.total) for x in self.limits)))

    def partition(self, name: str, profile: MigProfile, start: int) -> Consumption:
        """What the partition takes from counter set `name`."""
        position = self.geometry.profiles.index(profile)
        extra = ((x.name, x.weights[position]) for x in self.limits if x.weights[position])
        return Consumption(counter_set=name, counters=(*_slots(profile.mask(start)), *extra))

    def whole(self, name: str) -> Consumption:
        """What the full GPU takes: every slot, which excludes every partition."""
        return Consumption(counter_set=name, counters=_slots(self.geometry.all_slots))


@dataclass(frozen=True, slots=True, kw_only=True)
class Inexpressible:
    """No counters can say what this board can hold; it must not be partitioned dynamically."""

    reason: str


def memory_slice(slot: int) -> str:
    return f"memory-slice-{slot}"


def _slots(mask: int) -> tuple[tuple[str, int], ...]:
    return tuple((memory_slice(i), 1) for i in range(mask.bit_length()) if mask >> i & 1)


@lru_cache(maxsize=256)
def find_counters(offer: Offer) -> Counters | Inexpressible:
    """The fewest limits, greedily, that refuse every impossible set and nothing else."""
    geometry = offer.geometry
    if problem := _malformed(geometry):
        return Inexpressible(reason=problem)
    base = slot_sets(geometry.slots, geometry.base)
    sets = slot_sets(geometry.slots, offer.profiles)
    if base is None or sets is None:
        return Inexpressible(
            reason=f"more than {_MOST_SETS} sets of partitions fit its slots, too many to check;"
            " list fewer MIG profiles"
        )
    rule = _rule(geometry, base)
    positions = [geometry.profiles.index(p) for p in offer.profiles]
    refused = {
        limit: {s for s in sets if _sum(limit, positions, s) > limit.total} for limit in rule
    }
    impossible = set[int]().union(*refused.values())
    chosen: list[Limit] = []
    while impossible:
        # Every limit is part of the rule, so none refuses what is possible; `max` keeps the first.
        best = max(rule, key=lambda limit: len(refused[limit] & impossible))
        impossible -= refused[best]
        chosen.append(best)
    if geometry.slots + len(chosen) > MAX_COUNTERS_PER_SET:
        return Inexpressible(
            reason=f"{geometry.slots} slots and {len(chosen)} further limits need more than"
            f" {MAX_COUNTERS_PER_SET} counters, the most that one counter set may have"
        )
    return Counters(geometry=geometry, limits=tuple(x for x in rule if x in chosen))


def _malformed(geometry: Geometry) -> str:
    for profile in geometry.profiles:
        for place in profile.placements:
            if place.size < 1 or place.start < 0 or place.start + place.size > geometry.slots:
                return (
                    f"MIG profile {profile.name} is placed at slot {place.start} with size"
                    f" {place.size}, outside of the board's {geometry.slots} slots"
                )
        if len(set(profile.starts)) < len(profile.placements):
            return f"MIG profile {profile.name} is reported twice at one start"
    return ""


def slot_sets(slots: int, profiles: Sequence[MigProfile]) -> frozenset[int] | None:
    """The counts of every set of partitions without overlap, packed; None where too many.

    Goes through all sets from the last slot to the first, but keeps only how many of each profile
    there are: what lies to the right of a slot is independent of what lies to its left.
    """
    from_slot = [frozenset[int]()] * slots + [frozenset([0])]
    for slot in reversed(range(slots)):
        found = set(from_slot[slot + 1])
        for position, profile in enumerate(profiles):
            for place in profile.placements:
                if place.start == slot:
                    one = 1 << _FIELD * position
                    found.update(s + one for s in from_slot[slot + place.size])
        if len(found) > _MOST_SETS:
            return None
        from_slot[slot] = frozenset(found)
    return from_slot[0]


def count_in(packed: int, position: int) -> int:
    """How many of the profile at `position` are in a set of `slot_sets`."""
    return packed >> _FIELD * position & ((1 << _FIELD) - 1)


def compute_limit(geometry: Geometry) -> Limit:
    profiles = geometry.profiles
    fits = max((p.max_instances * p.compute_slices for p in profiles), default=0)
    weights = tuple(p.compute_slices for p in profiles)
    return Limit(name="compute-slices", total=fits, weights=weights)


def _sum(limit: Limit, positions: Sequence[int], packed: int) -> int:
    return sum(limit.weights[p] * count_in(packed, i) for i, p in enumerate(positions))


def _rule(geometry: Geometry, base: frozenset[int]) -> list[Limit]:
    """All limits of the hardware but the slots, from the most general to the most special."""
    profiles = geometry.profiles
    rule = [compute_limit(geometry)]
    rule += [
        Limit(
            name=f"instances-{p.label}",
            total=p.max_instances,
            weights=tuple(int(other is p) for other in profiles),
        )
        for p in profiles
    ]
    positions = [i for i, p in enumerate(profiles) if not p.is_variant]
    cuts = [s for s in base if all(_sum(x, positions, s) <= x.total for x in rule)]
    engines: dict[str, tuple[int, ...]] = {
        "copy-engines": tuple(p.copy_engines for p in profiles),
        "decoders": tuple(p.decoders for p in profiles),
        "encoders": tuple(p.encoders for p in profiles),
        "jpeg-engines": tuple(p.jpeg for p in profiles),
        "ofa-engines": tuple(p.ofa for p in profiles),
    }
    limits = []
    for name, weights in engines.items():
        alone = (w * p.max_instances for w, p in zip(weights, profiles, strict=True))
        unbounded = Limit(name=name, total=0, weights=weights)
        together = (_sum(unbounded, positions, s) for s in cuts)
        total = max((*alone, *together), default=0)
        limits.append(Limit(name=name, total=total, weights=weights))
    return [rule[0], *limits, *rule[1:]]
