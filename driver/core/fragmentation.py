"""How scattered the free room of a node is, and what it still holds: for people and metrics.

Why it exists: free slots say little, since seven free slots may not hold a single large partition.
Must not decide anything; the order is made elsewhere.

The score is 1 - potential now / potential if everything that runs were placed again by the packed
policy, largest first. 0: as good as repacked. What cannot be moved (withheld slots, profiles that
are no longer offered, full GPUs) stays where it is in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from driver.core.capacity import after, fits, potential, table
from driver.core.occupancy import Board, Live, State, states
from driver.core.packing import WHOLE, Policy, order_in


def score(boards: Sequence[Board], live: Live) -> float:
    """From 0 to 1. 0 where nothing could be gained, on a full node too."""
    now = _potential(boards, states(boards, live))
    best = max(now, _potential(boards, states(boards, repacked(boards, live))))
    return 1 - now / best if best else 0.0


def repacked(boards: Sequence[Board], live: Live) -> Live:
    """The same partitions, placed again. `live` itself where the policy finds no room for one."""
    offered = {
        b.uuid: {p.name: (p.size, p.compute_slices) for p in b.offer.profiles}
        for b in boards
        if b.offer is not None
    }
    movable = {p for p in live.partitions if p.profile in offered.get(p.gpu, {})}
    largest_first = sorted(movable, key=lambda p: (offered[p.gpu][p.profile], p), reverse=True)
    placed = live.partitions - movable
    for each in largest_first:
        attempt = replace(live, partitions=placed)
        order = order_in(boards, states(boards, attempt), Policy.PACKED)
        ranked = order.profile(each.profile).feasible
        if not ranked:
            return live
        placed |= {ranked[0]}
    return replace(live, partitions=placed)


def still_fits(boards: Sequence[Board], live: Live) -> dict[str, int]:
    """How many more of each kind fit at once, if only that kind came. `WHOLE`: full GPUs."""
    now = states(boards, live)
    found: dict[str, int] = {}
    for board, state in zip(boards, now, strict=True):
        for position, profile in enumerate(board.offer.profiles if board.offer else ()):
            found[profile.name] = found.get(profile.name, 0) + _more(board, state, position)
    found[WHOLE] = sum(b.full and s.idle for b, s in zip(boards, now, strict=True))
    return found


def _more(board: Board, state: State, position: int) -> int:
    """Taking whatever ends first leaves the most room for the rest."""
    if board.offer is None:
        return 0
    of, count = table(board.offer), 0
    mask, used = state.mask, state.used
    for move in sorted(of.moves[position], key=lambda m: m.mask):
        if fits(of, move, mask, used):
            mask, used = after(move, mask, used)
            count += 1
    return count


def _potential(boards: Sequence[Board], now: Sequence[State]) -> int:
    """Of the partitions and of the full GPUs: every kind that is offered."""
    partitions = sum(
        potential(table(b.offer), s.mask, s.used)
        for b, s in zip(boards, now, strict=True)
        if b.offer is not None
    )
    full = sum(
        b.offer.geometry.compute_slices
        for b, s in zip(boards, now, strict=True)
        if b.offer is not None and b.full and s.idle
    )
    return partitions + full
