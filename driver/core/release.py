"""The smallest set of claims whose end would make room: the answer to "why does my pod wait?".

Why it exists: on a fragmented node the way out is often one small pod, and nobody sees which. Must
not end anything. The search is exact: what overlaps the wanted slots must go in any case, and only
limits beside the slots leave a choice, which is tried from the smallest set up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from driver.core.capacity import Move, table
from driver.core.ids import ClaimUID
from driver.core.occupancy import Board, Live, Partition, Ref, Whole
from driver.core.packing import WHOLE
from driver.core.static_order import ranks_of

_EVERYTHING: Final = -1
"""Every slot, also of a board without any."""

Claims = Mapping[ClaimUID, frozenset[Ref]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """When `claims` have ended, `device` can be allocated. No claims: it can be now."""

    device: Ref
    claims: frozenset[ClaimUID]


@dataclass(frozen=True, slots=True)
class _Tenant:
    """One device in use on a GPU. Without a claim it is not known to end."""

    mask: int
    weights: tuple[int, ...]
    claims: frozenset[ClaimUID]


def smallest_release(
    boards: Sequence[Board], live: Live, claims: Claims, kind: str
) -> Release | None:
    """For one more `kind`, a profile or `WHOLE`. Of equally many claims, those on fewer slots; then
    the packed policy's static order. None where no end of `claims` would help.
    """
    found: list[tuple[tuple[int, int, int, int], Release]] = []
    for position, board in enumerate(boards):
        tenants = _tenants(board, live, claims)
        for rank, device, move in _devices(board, kind):
            ends = _ends(board, tenants, move, live.withheld.get(board.uuid, 0))
            if ends is not None:
                slots = sum(
                    (t.mask & _slots(board)).bit_count() for t in tenants if t.claims & ends
                )
                key = (len(ends), slots, -position if kind == WHOLE else position, rank)
                found.append((key, Release(device=device, claims=ends)))
    return min(found, key=lambda f: f[0])[1] if found else None


def _devices(board: Board, kind: str) -> Iterator[tuple[int, Ref, Move]]:
    if kind == WHOLE:
        if board.full:
            yield 0, Whole(gpu=board.uuid), Move(0, _EVERYTHING, ())
        return
    if board.offer is None:
        return
    of, ranks = table(board.offer), ranks_of(board.offer)
    for profile, moves in zip(of.profiles, of.moves, strict=True):
        if profile.name == kind:
            for move in moves:
                device = Partition(gpu=board.uuid, profile=kind, start=move.start)
                yield ranks[kind, move.start], device, move


def _slots(board: Board) -> int:
    return board.offer.geometry.all_slots if board.offer else 1


def _tenants(board: Board, live: Live, claims: Claims) -> list[_Tenant]:
    here: list[Ref] = [p for p in live.partitions if p.gpu == board.uuid]
    if board.uuid in live.whole:
        here.append(Whole(gpu=board.uuid))
    tenants = []
    for ref in here:
        mask: int = _EVERYTHING
        weights: tuple[int, ...] = table(board.offer).nothing if board.offer else ()
        if isinstance(ref, Partition) and board.offer is not None:
            mask, weights = table(board.offer).instance(ref.profile, ref.start)
        holders = frozenset(uid for uid, refs in claims.items() if ref in refs)
        tenants.append(_Tenant(mask, weights, holders))
    return tenants


def _ends(
    board: Board, tenants: Sequence[_Tenant], move: Move, withheld: int
) -> frozenset[ClaimUID] | None:
    """The fewest claims that must end for `move`; None where something else is in its way."""
    in_the_way = [t for t in tenants if t.mask & move.mask]
    if withheld & move.mask or any(not t.claims for t in in_the_way):
        return None
    forced = frozenset[ClaimUID]().union(*(t.claims for t in in_the_way))
    others = sorted(frozenset[ClaimUID]().union(*(t.claims for t in tenants)) - forced)
    for count in range(len(others) + 1):
        for more in combinations(others, count):
            ends = forced.union(more)
            if _within(board, move, [t for t in tenants if not (t.claims and t.claims <= ends)]):
                return ends
    return None


def _within(board: Board, move: Move, staying: Sequence[_Tenant]) -> bool:
    """Whether the limits beside the slots allow `move` next to `staying`."""
    if board.offer is None or not move.weights:
        return True
    totals = table(board.offer).totals
    sums = (sum(column) for column in zip(move.weights, *(t.weights for t in staying), strict=True))
    return all(s <= t for s, t in zip(sums, totals, strict=True))
