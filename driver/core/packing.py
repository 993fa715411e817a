"""The order in which devices are offered: `(boards, live allocations, policy) -> Order`.

Why it exists: the scheduler takes the first device that fits, in the order published, so a policy
*is* an order. It is a pure function of its arguments: same input, same bytes. Must not know slices;
`layout.py` cuts them.

What cannot be taken now goes last, in an order that does not depend on what is in use: the
scheduler evaluates selectors for each device that only counters block, and that costs it time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import chain
from operator import itemgetter

from driver.core.capacity import free_moves, loss, table
from driver.core.geometry import Offer
from driver.core.occupancy import Board, Live, Partition, Ref, State, Whole, states
from driver.core.static_order import static_order, static_ranks


class Policy(StrEnum):
    """`PACKED` keeps whole GPUs whole; `DISTRIBUTED` spreads heat and faults."""

    PACKED = "packed"
    DISTRIBUTED = "distributed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """Devices of one kind: those that can be taken now, best first, then those that cannot."""

    feasible: tuple[Ref, ...] = ()
    blocked: tuple[Ref, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The whole node. `profiles`: by name, smallest first."""

    profiles: Mapping[str, Ranked]
    whole: Ranked


Key = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listing:
    """What one GPU offers of one profile in one state.

    `packed`: the key of its best start, without the GPU's position; `ranks`: S* of each feasible.
    """

    packed: Key
    feasible: tuple[Partition, ...]
    ranks: tuple[int, ...]
    blocked: tuple[Partition, ...]


def make_order(boards: Sequence[Board], live: Live, policy: Policy) -> Order:
    """Boards are in the node's stable order (by PCI address); partitions are offered from the first
    board up and whole GPUs from the last one down, so that the two meet as late as possible.

    With nothing live this is the static order S*, for when the true state is not known.
    """
    return order_in(boards, states(boards, live), policy)


def order_in(boards: Sequence[Board], now: Sequence[State], policy: Policy) -> Order:
    """`make_order` where the states are known already."""
    by_profile: dict[str, list[tuple[int, _Listing]]] = {}
    for position, (board, state) in enumerate(zip(boards, now, strict=True)):
        for name, listing in _listings(board, state).items():
            by_profile.setdefault(name, []).append((position, listing))
    arrange = _ARRANGE[policy]
    return Order(
        profiles={
            name: Ranked(
                feasible=arrange(by_profile[name], now),
                blocked=tuple(chain.from_iterable(x.blocked for _, x in by_profile[name])),
            )
            for name in _names(boards)
        },
        whole=_whole(boards, now),
    )


def _packed(listings: list[tuple[int, _Listing]], _: Sequence[State]) -> tuple[Partition, ...]:
    """GPU by GPU, because a burst that sees one order must pack too."""
    fits = [(listing.packed, position, listing) for position, listing in listings]
    fits.sort(key=itemgetter(0, 1))
    return tuple(chain.from_iterable(listing.feasible for _, _, listing in fits))


def _distributed(
    listings: list[tuple[int, _Listing]], now: Sequence[State]
) -> tuple[Partition, ...]:
    """Placement by placement, the emptiest GPU first: a burst that sees one order spreads too."""
    keyed = [
        (rank, now[position].instances, position, ref)
        for position, listing in listings
        for rank, ref in zip(listing.ranks, listing.feasible, strict=True)
    ]
    return tuple(k[3] for k in sorted(keyed, key=itemgetter(0, 1, 2)))


_ARRANGE: Mapping[
    Policy, Callable[[list[tuple[int, _Listing]], Sequence[State]], tuple[Partition, ...]]
] = {Policy.PACKED: _packed, Policy.DISTRIBUTED: _distributed}


@lru_cache(maxsize=1 << 14)
def _listings(board: Board, state: State) -> dict[str, _Listing]:
    """One GPU, all its profiles. Kept: after an event, the other GPUs of the node are as before.

    The key puts used GPUs before idle ones, then least loss of potential, then the fuller GPU, then
    S*. On the 8-slot class the loss alone has used before idle, because an idle GPU also loses its
    full device; other geometries and choices of profiles may break it.
    """
    if board.offer is None:
        return {}
    of, ranks = table(board.offer), static_ranks(board.offer.geometry)
    orders = static_order(board.offer.geometry)
    free = free_moves(of, state.mask, state.used)
    opening = board.offer.geometry.compute_slices if board.full and state.idle else 0
    listings = {}
    for profile, moves in zip(of.profiles, free, strict=True):
        name = profile.name
        costs = {
            m.start: (loss(of, m, state.mask, state.used), ranks[name, m.start]) for m in moves
        }
        by_rank = [s for s in orders[name] if s in costs]
        best = min(by_rank, key=costs.__getitem__, default=None)
        starts = by_rank if best is None else [best, *(s for s in by_rank if s != best)]
        cost, rank = (0, 0) if best is None else costs[best]
        listings[name] = _Listing(
            packed=(state.idle, cost + opening, -state.mask.bit_count(), rank),
            feasible=_refs(board, name, starts),
            ranks=tuple(ranks[name, s] for s in starts),
            blocked=_refs(board, name, [s for s in orders[name] if s not in costs]),
        )
    return listings


def _refs(board: Board, profile: str, starts: Sequence[int]) -> tuple[Partition, ...]:
    return tuple(Partition(gpu=board.uuid, profile=profile, start=s) for s in starts)


def _whole(boards: Sequence[Board], now: Sequence[State]) -> Ranked:
    """Idle ones from the last GPU down; used ones behind them."""
    offered = [(_full(b), s) for b, s in zip(boards, now, strict=True) if b.full]
    last_first = offered[::-1]
    return Ranked(
        feasible=tuple(ref for ref, state in last_first if state.idle),
        blocked=tuple(ref for ref, state in last_first if not state.idle),
    )


@lru_cache(maxsize=256)
def _full(board: Board) -> Whole:
    return Whole(gpu=board.uuid)


def _names(boards: Sequence[Board]) -> tuple[str, ...]:
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
