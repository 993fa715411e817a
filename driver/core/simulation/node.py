"""One simulated node: what is in use, kept up to date event by event.

Why it exists: `occupancy.states` adds up all that is live, which is right once and slow a million
times. Must not know who decides; the scheduler's check ("does it fit") is here because it is a
question to the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from driver.core.capacity import Table, table
from driver.core.ids import GpuUuid
from driver.core.occupancy import NOTHING, Board, Live, Partition, Ref, State, Whole, states


class Spot(NamedTuple):
    """A device, compiled: the GPU's position, the slots it takes and its part of the limits."""

    ref: Ref
    place: int
    mask: int
    weights: tuple[int, ...]


class Node:
    """Boards that can all be partitioned. `idle`: how many hold nothing."""

    def __init__(self, boards: Sequence[Board]) -> None:
        self.boards = tuple(boards)
        self.now: list[State] = list(states(self.boards, NOTHING))
        self.idle = len(self.boards)
        self._places: dict[GpuUuid, int] = {b.uuid: n for n, b in enumerate(self.boards)}
        self._tables: list[Table] = [table(b.offer) for b in self.boards if b.offer is not None]
        self._partitions = set[Partition]()
        self._whole = set[GpuUuid]()
        self._spots: dict[Ref, Spot] = {}

    @property
    def live(self) -> Live:
        return Live(partitions=frozenset(self._partitions), whole=frozenset(self._whole))

    def first(self, spots: Iterable[Spot]) -> Ref | None:
        """The first that the counters allow, as the scheduler looks for it."""
        now = self.now
        for ref, place, mask, weights in spots:
            if not now[place].mask & mask and (not weights or self._within(place, weights)):
                return ref
        return None

    def take(self, ref: Ref) -> None:
        _, place, mask, weights = self.spot(ref)
        before = self.now[place]
        used = tuple(map(sum, zip(before.used, weights, strict=True)))
        self.now[place] = State(before.mask | mask, used, before.instances + 1)
        self.idle -= before.instances == 0
        if isinstance(ref, Partition):
            self._partitions.add(ref)
        else:
            self._whole.add(ref.gpu)

    def end(self, ref: Ref) -> None:
        _, place, mask, weights = self.spot(ref)
        before = self.now[place]
        used = tuple(u - w for u, w in zip(before.used, weights, strict=True))
        self.now[place] = State(before.mask & ~mask, used, before.instances - 1)
        self.idle += before.instances == 1
        if isinstance(ref, Partition):
            self._partitions.remove(ref)
        else:
            self._whole.remove(ref.gpu)

    def spot(self, ref: Ref) -> Spot:
        found = self._spots.get(ref)
        if found is None:
            place = self._places[ref.gpu]
            of = self._tables[place]
            if isinstance(ref, Whole):
                found = Spot(ref, place, of.all_slots, of.nothing)
            else:
                found = Spot(ref, place, *of.instance(ref.profile, ref.start))
            self._spots[ref] = found
        return found

    def _within(self, place: int, weights: tuple[int, ...]) -> bool:
        used, totals = self.now[place].used, self._tables[place].totals
        return all(u + w <= t for u, w, t in zip(used, weights, totals, strict=True))
