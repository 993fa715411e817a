"""The order in which devices are offered: `(boards, live allocations, policy) -> Order`.

Why it exists: the scheduler takes the first device that fits, in the order published, so a policy
*is* an order. It is a pure function of its arguments: same input, same bytes. Must not know slices;
`layout.py` cuts them.

What cannot be taken now goes last, in an order that does not depend on what is in use: the
scheduler evaluates selectors for each device that only counters block, and that costs it time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Final, Generic, TypeVar

from driver.core.geometry import Offer
from driver.core.ids import GpuUuid
from driver.core.listings import Key, Listing, full, listings
from driver.core.occupancy import Board, Live, Partition, Ref, State, Whole, states

WHOLE: Final = ""
"""The kind of a full GPU; other kinds are the names of profiles."""

R_co = TypeVar("R_co", bound=Ref, covariant=True)


class Policy(StrEnum):
    """`PACKED` keeps whole GPUs whole; `DISTRIBUTED` spreads heat and faults."""

    PACKED = "packed"
    DISTRIBUTED = "distributed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked(Generic[R_co]):
    """Devices of one kind: those that can be taken now, best first, then those that cannot."""

    feasible: tuple[R_co, ...] = ()
    blocked: tuple[R_co, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The whole node. A kind is ranked when it is asked for; the first of it costs far less.

    `tainted` devices stand behind those that are free, whatever GPU they are on.
    """

    boards: tuple[Board, ...]
    now: tuple[State, ...]
    policy: Policy
    listings: tuple[Mapping[str, Listing], ...]
    tainted: frozenset[Ref] = frozenset()

    @property
    def profiles(self) -> Mapping[str, Ranked[Partition]]:
        """By name, smallest first."""
        return {name: self.profile(name) for name in _names(self.boards)}

    @property
    def whole(self) -> Ranked[Whole]:
        """Idle GPUs from the last one down; used and tainted ones behind them."""
        offered = [(full(b), s) for b, s in zip(self.boards, self.now, strict=True) if b.full]
        free = {ref for ref, state in offered if state.idle and ref not in self.tainted}
        last_first = [ref for ref, _ in reversed(offered)]
        return Ranked(
            feasible=tuple(ref for ref in last_first if ref in free),
            blocked=tuple(ref for ref in last_first if ref not in free),
        )

    def kinds(self) -> list[Ranked[Ref]]:
        return [*self.profiles.values(), self.whole]

    def ranked(self, kind: str) -> Ranked[Ref]:
        return self.whole if kind == WHOLE else self.profile(kind)

    def profile(self, name: str) -> Ranked[Partition]:
        found = [(n, x[name]) for n, x in enumerate(self.listings) if name in x]
        match self.policy:
            case Policy.PACKED:
                # GPU by GPU, because a burst that sees one order must pack too.
                keyed = [(listing.key, n, listing) for n, listing in found]
                keyed.sort(key=itemgetter(0, 1))
                feasible = tuple(chain.from_iterable(x.feasible for _, _, x in keyed))
            case Policy.DISTRIBUTED:
                # Placement by placement, the emptiest GPU first: a burst spreads too.
                spread = [
                    (rank, self.now[n].instances, n, ref)
                    for n, listing in found
                    for rank, ref in listing.spread
                ]
                feasible = tuple(x[3] for x in sorted(spread, key=itemgetter(0, 1, 2)))
        blocked = tuple(chain.from_iterable(listing.blocked for _, listing in found))
        if self.tainted:
            blocked = (*(ref for ref in feasible if ref in self.tainted), *blocked)
            feasible = tuple(ref for ref in feasible if ref not in self.tainted)
        return Ranked(feasible=feasible, blocked=blocked)

    def first(self, kind: str, gpus: Collection[GpuUuid]) -> Ref | None:
        """What the policy takes next of `kind`, None where nothing is free. Partitions are looked
        for on `gpus`, full GPUs on the whole node.
        """
        if kind == WHOLE:
            downwards = zip(reversed(self.boards), reversed(self.now), strict=True)
            idle = (full(b) for b, s in downwards if b.full and s.idle)
            return next((ref for ref in idle if ref not in self.tainted), None)
        firsts = [
            first
            for n, x in enumerate(self.listings)
            if kind in x
            and self.boards[n].uuid in gpus
            and (first := self._first(n, x[kind])) is not None
        ]
        return min(firsts, key=itemgetter(0))[1] if firsts else None

    def _first(self, n: int, listing: Listing) -> tuple[Key, Partition] | None:
        """The best of GPU `n`, with what compares it with the best of the others."""
        if self.policy is Policy.PACKED:
            best = next((ref for ref in listing.feasible if ref not in self.tainted), None)
            return None if best is None else ((*listing.key, n), best)
        free = (x for x in listing.spread if x[1] not in self.tainted)
        return next((((rank, self.now[n].instances, n), ref) for rank, ref in free), None)


def make_order(boards: Sequence[Board], live: Live, policy: Policy) -> Order:
    """Boards are in the node's stable order (by PCI address); partitions are offered from the first
    board up and whole GPUs from the last one down, so that the two meet as late as possible.

    With nothing live this is the static order S*, for when the true state is not known.
    """
    return order_in(boards, states(boards, live), policy, live.tainted)


def order_in(
    boards: Sequence[Board],
    now: Sequence[State],
    policy: Policy,
    tainted: frozenset[Ref] = frozenset(),
) -> Order:
    """`make_order` where the states are known already."""
    return Order(
        boards=tuple(boards),
        now=tuple(now),
        policy=policy,
        listings=tuple(map(listings, boards, now)),
        tainted=tainted,
    )


def _names(boards: tuple[Board, ...]) -> tuple[str, ...]:
    return _smallest_first(frozenset(b.offer for b in boards if b.offer is not None))


@lru_cache(maxsize=256)
def _smallest_first(offers: frozenset[Offer]) -> tuple[str, ...]:
    """The profiles of the node; one that two boards have in two shapes counts as the smaller."""
    sizes: dict[str, tuple[int, int, bool, int]] = {}
    for offer in offers:
        for p in offer.profiles:
            key = (p.size, p.compute_slices, p.is_variant, p.index)
            sizes[p.name] = min(sizes.get(p.name, key), key)
    return tuple(sorted(sizes, key=lambda name: (sizes[name], name)))
