"""What is taken on each GPU of the node: live allocations as slots and sums.

Why it exists: every decision about order or room starts from "which slots are free there", and an
allocation is a set of names. Must not know why something is taken; slots of foreign instances, or
of a withheld GPU, come in as a mask.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from driver.core.capacity import table
from driver.core.geometry import Offer
from driver.core.ids import GpuUuid


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Partition:
    """One placement-exact device: this profile at this start of this GPU."""

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

    def partitions(self) -> int:
        """How many partitions it offers."""
        return sum(len(p.placements) for p in self.offer.profiles) if self.offer else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """What the scheduler has given away and what it cannot have: `withheld` slots of a GPU.

    A whole GPU may be withheld too, with any mask that is not zero.
    """

    partitions: frozenset[Partition] = frozenset()
    whole: frozenset[GpuUuid] = frozenset()
    withheld: Mapping[GpuUuid, int] = field(default_factory=dict)


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
    """One state a board, in their order. KeyError for a live partition that no board can hold."""
    masks = {b.uuid: live.withheld.get(b.uuid, 0) for b in boards}
    sums = {b.uuid: _nothing(b) for b in boards}
    counts: Counter[GpuUuid] = Counter(live.whole)
    tables = {b.uuid: table(b.offer) for b in boards if b.offer is not None}
    for each in live.partitions:
        if each.gpu not in tables:
            raise KeyError(f"GPU {each.gpu} offers no partitions, but {each} is in use")
        slots, weights = tables[each.gpu].instance(each.profile, each.start)
        masks[each.gpu] |= slots
        counts[each.gpu] += 1
        if weights:
            sums[each.gpu] = tuple(map(sum, zip(sums[each.gpu], weights, strict=True)))
    for uuid in live.whole & masks.keys():
        masks[uuid] |= tables[uuid].all_slots if uuid in tables else 1
    return tuple(State(masks[b.uuid], sums[b.uuid], counts[b.uuid]) for b in boards)


def can_take(board: Board, state: State, ref: Ref) -> bool:
    """Whether `ref`, a device of `board`, can be allocated in this state."""
    if isinstance(ref, Whole) or board.offer is None:
        return state.idle
    of = table(board.offer)
    slots, weights = of.instance(ref.profile, ref.start)
    if slots & state.mask:
        return False
    return all(u + w <= t for u, w, t in zip(state.used, weights, of.totals, strict=True))


def _nothing(board: Board) -> tuple[int, ...]:
    return table(board.offer).nothing if board.offer else ()
