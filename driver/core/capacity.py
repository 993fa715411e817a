"""What one GPU can still take, and what it would lose by taking something.

Why it exists: packing, re-ranking and late binding ask these two questions thousands of times for
the same few states, so the geometry is compiled once and the answers are kept. Must not know the
other GPUs of the node.

Source of the potential ("capacity gradient"): sum of compute(p) x fit(p) over the profiles, where
fit(p) counts the starts of p that are still free; placing where it falls least stays within 1 % of
the exact online optimum on the 8-slot class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from driver.core.counters import Counters, Inexpressible, Limit, find_counters
from driver.core.errors import ContractError
from driver.core.geometry import MigProfile, Offer
from driver.core.late_counters import LateCounters, find_late_counters


class Move(NamedTuple):
    """One more instance: at `start`, it takes `mask` and adds `weights` to the limits' sums."""

    start: int
    mask: int
    weights: tuple[int, ...]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Table:
    """A board compiled for speed. One object each, compared by identity, which keeps memos cheap.

    `moves`: of each profile in `profiles`, ascending by start. `totals`: of the further limits.
    `known`: every instance of the geometry, also of profiles that are not in `profiles`.
    """

    profiles: tuple[MigProfile, ...]
    moves: tuple[tuple[Move, ...], ...]
    totals: tuple[int, ...]
    all_slots: int
    known: dict[tuple[str, int], tuple[int, tuple[int, ...]]]

    @property
    def nothing(self) -> tuple[int, ...]:
        """The sums of an empty GPU."""
        return (0,) * len(self.totals)

    def instance(self, profile: str, start: int) -> tuple[int, tuple[int, ...]]:
        """Slots and weights. KeyError where the board cannot hold such an instance."""
        try:
            return self.known[profile, start]
        except KeyError:
            raise KeyError(f"the board has no MIG profile {profile} at slot {start}") from None


@lru_cache(maxsize=256)
def table(offer: Offer) -> Table:
    """ContractError where no counters express what the board can hold."""
    match find_late_counters(offer) if offer.late else find_counters(offer):
        case Inexpressible(reason=reason):
            raise ContractError(f"the GPU cannot be partitioned dynamically: {reason}")
        case Counters(limits=limits):
            return compile_table(offer, limits)
        case LateCounters() as late:
            return _late_table(offer, late)


def _late_table(offer: Offer, counters: LateCounters) -> Table:
    """A bit of the mask for each device, because only its like can be had in its place."""
    moves: list[tuple[Move, ...]] = []
    bits = 0
    for profile in offer.profiles:
        count = counters.most[profile.name]
        weights = counters.weights(profile)
        moves.append(tuple(Move(n, 1 << (bits + n), weights) for n in range(count)))
        bits += count
    return Table(
        profiles=offer.profiles,
        moves=tuple(moves),
        totals=tuple(x.total for x in counters.limits),
        all_slots=(1 << bits) - 1,
        known={
            (p.name, m.start): (m.mask, m.weights)
            for p, of_profile in zip(offer.profiles, moves, strict=True)
            for m in of_profile
        },
    )


def compile_table(offer: Offer, limits: Sequence[Limit]) -> Table:
    """A table of `offer.profiles` under `limits`; without limits only slots count."""
    everything = offer.geometry.profiles
    weights = {
        p.name: tuple(x.weights[position] for x in limits) for position, p in enumerate(everything)
    }
    return Table(
        profiles=offer.profiles,
        moves=tuple(
            tuple(Move(s, p.mask(s), weights[p.name]) for s in p.starts) for p in offer.profiles
        ),
        totals=tuple(x.total for x in limits),
        all_slots=offer.geometry.all_slots,
        known={
            (p.name, place.start): (place.mask, weights[p.name])
            for p in everything
            for place in p.placements
        },
    )


@lru_cache(maxsize=1 << 16)
def free_moves(of: Table, mask: int, used: tuple[int, ...]) -> tuple[tuple[Move, ...], ...]:
    """Of each profile: the instances that can still be made, ascending by start."""
    return tuple(tuple(m for m in moves if fits(of, m, mask, used)) for moves in of.moves)


def fits(of: Table, move: Move, mask: int, used: tuple[int, ...]) -> bool:
    if move.mask & mask:
        return False
    return all(u + w <= t for u, w, t in zip(used, move.weights, of.totals, strict=True))


def after(move: Move, mask: int, used: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """Slots and sums once `move` is made."""
    if not used:
        return mask | move.mask, used
    return mask | move.mask, tuple(u + w for u, w in zip(used, move.weights, strict=True))


@lru_cache(maxsize=1 << 16)
def potential(of: Table, mask: int, used: tuple[int, ...]) -> int:
    """Sum of compute slices x free starts over the profiles of the table."""
    free = free_moves(of, mask, used)
    return sum(p.compute_slices * len(f) for p, f in zip(of.profiles, free, strict=True))


def loss(of: Table, move: Move, mask: int, used: tuple[int, ...]) -> int:
    """How much of the potential `move` costs; the less, the better it fits."""
    return potential(of, mask, used) - potential(of, *after(move, mask, used))
