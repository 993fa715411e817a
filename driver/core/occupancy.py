"""What is taken on each GPU of the node: live allocations as slots and sums.

Why it exists: every decision about order or room starts from "which slots are free there", and an
allocation is a set of names. Must not know why something is taken; slots of foreign instances, or
of a withheld GPU, come in as a mask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from driver.core.capacity import Table, table
from driver.core.geometry import Offer
from driver.core.ids import GpuUuid


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Partition:
    """One partition of this GPU as a device: this profile at this start.

    Where the board's offer is late, `start` is the device's ordinal.
    """

    gpu: GpuUuid
    profile: str
    start: int


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Whole:
    """The full GPU as a device."""

    gpu: GpuUuid


Ref = Partition | Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One GPU of the node. `offer` is None where it cannot, or may not, be partitioned; `full` is
    False where it is not offered as a whole, for example in a MIG mode that needs a reset to leave.
    """

    uuid: GpuUuid
    offer: Offer | None = None
    full: bool = True
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.uuid, self.offer, self.full)))

    def __hash__(self) -> int:
        return self._hash

    def partitions(self) -> int:
        """How many partitions it offers."""
        return sum(len(p.placements) for p in self.offer.profiles) if self.offer else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """What the scheduler has given away and what it cannot have: `withheld` slots of a GPU.

    A whole GPU may be withheld too, with any mask that is not zero. `unlisted`: of the withheld
    slots those of devices in use that are not offered any more. `tainted`: devices that no claim
    gets, free or not, unless it tolerates why.
    """

    partitions: frozenset[Partition] = frozenset()
    whole: frozenset[GpuUuid] = frozenset()
    withheld: Mapping[GpuUuid, int] = field(default_factory=dict)
    unlisted: Mapping[GpuUuid, int] = field(default_factory=dict)
    tainted: frozenset[Ref] = frozenset()


NOTHING = Live()


class State(NamedTuple):
    """One GPU: slots that are taken, sums of its further limits, devices in use on it.

    A tuple, because it is the key of the memos that make a re-rank cheap.
    """

    mask: int
    used: tuple[int, ...]
    instances: int

    @property
    def idle(self) -> bool:
        return not self.mask and not self.instances


def states(boards: Sequence[Board], live: Live) -> tuple[State, ...]:
    """One state a board, in their order. What is in use on a GPU that is not among them is passed
    over: it is lost. KeyError for a partition that its board cannot hold.
    """
    places, tables, nothing = _compiled(tuple(boards))
    masks = [live.withheld.get(b.uuid, 0) for b in boards]
    sums, counts = list(nothing), [0] * len(masks)
    for each in live.partitions:
        place = places.get(each.gpu)
        if place is None:
            continue
        of, counts[place] = tables[place], counts[place] + 1
        if of is None:
            continue
        slots, weights = of.instance(each.profile, each.start)
        masks[place] |= slots
        if weights:
            sums[place] = tuple(map(sum, zip(sums[place], weights, strict=True)))
    for uuid in live.whole & places.keys():
        place = places[uuid]
        of = tables[place]
        masks[place] |= of.all_slots if of else 1
        counts[place] += 1
    return tuple(map(State, masks, sums, counts))


@lru_cache(maxsize=64)
def _compiled(
    boards: tuple[Board, ...],
) -> tuple[dict[GpuUuid, int], tuple[Table | None, ...], tuple[tuple[int, ...], ...]]:
    """Where each GPU stands, its table, and the sums of an empty one."""
    tables = tuple(table(b.offer) if b.offer else None for b in boards)
    return (
        {b.uuid: place for place, b in enumerate(boards)},
        tables,
        tuple(t.nothing if t else () for t in tables),
    )


def can_take(board: Board, state: State, ref: Ref) -> bool:
    """Whether `ref`, a device of `board`, can be allocated in this state."""
    if isinstance(ref, Whole) or board.offer is None:
        return state.idle
    of = table(board.offer)
    slots, weights = of.instance(ref.profile, ref.start)
    if slots & state.mask:
        return False
    return all(u + w <= t for u, w, t in zip(state.used, weights, of.totals, strict=True))
