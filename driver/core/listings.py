"""What one GPU offers in one state, in every order that a policy may need.

Why it exists: after an event all other GPUs of the node are as they were, and a GPU has few states;
so the work for one GPU and state is done once and kept. Must not know the other GPUs of the node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from driver.core.capacity import free_moves, loss, table
from driver.core.occupancy import Board, Partition, State, Whole
from driver.core.static_order import ranks_of, starts_of

Key = tuple[int, ...]
"""How a GPU, or a start, compares with those of other GPUs; the lower is taken first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One profile on one GPU.

    `key`: of its best start under the packed policy, without the GPU's position. `feasible`: that
    start, then the others by S*. `spread`: all by S*, each with its rank. `blocked`: by S* too.
    """

    key: Key
    feasible: tuple[Partition, ...]
    spread: tuple[tuple[int, Partition], ...]
    blocked: tuple[Partition, ...]


@lru_cache(maxsize=1 << 14)
def listings(board: Board, state: State) -> dict[str, Listing]:
    """Of every profile of the GPU, by name.

    The key puts used GPUs before idle ones, then least loss of potential, then the fuller GPU, then
    S*. On the 8-slot class the loss alone has used before idle, because an idle GPU also loses its
    full device; other geometries and choices of profiles may break it.
    """
    if board.offer is None:
        return {}
    of, ranks, orders = table(board.offer), ranks_of(board.offer), starts_of(board.offer)
    free = free_moves(of, state.mask, state.used)
    opening = board.offer.geometry.compute_slices if board.full and state.idle else 0
    found = {}
    for profile, moves in zip(of.profiles, free, strict=True):
        name = profile.name
        costs = {
            m.start: (loss(of, m, state.mask, state.used), ranks[name, m.start]) for m in moves
        }
        by_rank = [s for s in orders[name] if s in costs]
        best = min(by_rank, key=costs.__getitem__, default=None)
        starts = by_rank if best is None else [best, *(s for s in by_rank if s != best)]
        cost, rank = (0, 0) if best is None else costs[best]
        found[name] = Listing(
            key=(state.idle, cost + opening, -state.mask.bit_count(), rank),
            feasible=_refs(board, name, starts),
            spread=tuple(
                zip((costs[s][1] for s in by_rank), _refs(board, name, by_rank), strict=True)
            ),
            blocked=_refs(board, name, [s for s in orders[name] if s not in costs]),
        )
    return found


def _refs(board: Board, profile: str, starts: Sequence[int]) -> tuple[Partition, ...]:
    return tuple(Partition(gpu=board.uuid, profile=profile, start=s) for s in starts)


@lru_cache(maxsize=256)
def full(board: Board) -> Whole:
    return Whole(gpu=board.uuid)
