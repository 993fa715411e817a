"""Who decides where a job goes: a scheduler that takes the first device that fits in some order.

Why it exists: the order is all that differs between drivers. Ours is read from the slices that this
driver would publish, replaced by `rerank` as the driver replaces them; the others are written down
here. Must not know time or jobs.

NVIDIA's order: one slice a GPU in the order of PCI addresses, devices by name, so for each profile
the lowest GPU and there the lowest start. Up to Kubernetes 1.35 the order of slices is arbitrary,
so the GPU is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from driver.core.layout import SlicePlan, lay_out
from driver.core.occupancy import NOTHING, Board, Live, Partition, Ref, State, Whole
from driver.core.packing import WHOLE, Policy, make_order
from driver.core.rerank import rerank
from driver.core.simulation.jobs import Source
from driver.core.simulation.node import Node, Spot

MOST_KEPT: Final = 1 << 18


class Chooser(Protocol):
    """One policy on one node."""

    def choose(self, kind: str) -> Ref | None:
        """Where the scheduler puts one more of `kind`; None where nothing fits."""
        ...

    def changed(self) -> None:
        """The node has one job more or less."""
        ...


class FirstFit:
    """A list for each kind that never changes."""

    def __init__(self, node: Node, devices: Iterable[Ref]) -> None:
        self._node = node
        self._lists: dict[str, list[Spot]] = {}
        for ref in devices:
            self._lists.setdefault(kind_of(ref), []).append(node.spot(ref))

    def choose(self, kind: str) -> Ref | None:
        return self._node.first(self._lists.get(kind, ()))

    def changed(self) -> None:
        """Nothing to do."""


class AnyGpuFirst:
    """The lists of each GPU, which come in a new order each time."""

    def __init__(self, node: Node, devices: Iterable[Ref], source: Source) -> None:
        self._node, self._source = node, source
        self._lists: dict[tuple[str, str], list[Spot]] = {}
        for ref in devices:
            self._lists.setdefault((ref.gpu, kind_of(ref)), []).append(node.spot(ref))

    def choose(self, kind: str) -> Ref | None:
        left = [b.uuid for b in self._node.boards]
        while left:
            gpu = left.pop(int(self._source.random() * len(left)))
            found = self._node.first(self._lists.get((gpu, kind), ()))
            if found is not None:
                return found
        return None

    def changed(self) -> None:
        """Nothing to do."""


class Published:
    """Our order: slices as the driver lays them out, replaced where `rerank` says so.

    `lag`: how many allocations and ends the order is behind when a job comes. Without lag the
    scheduler's choice depends on the state alone, so it is kept.
    """

    def __init__(self, node: Node, policy: Policy, *, lag: int = 0) -> None:
        self._node, self._policy, self._lag = node, policy, lag
        self._slices: dict[str, SlicePlan] = {}
        self._seen = deque[Live]([NOTHING], maxlen=lag + 1)
        self._kept: dict[tuple[tuple[State, ...], str], Ref | None] = {}
        for plan in lay_out(node.boards, make_order(node.boards, NOTHING, policy)):
            self._put(plan)

    def choose(self, kind: str) -> Ref | None:
        if self._lag:
            return self._first(kind)
        key = (tuple(self._node.now), kind)
        if key not in self._kept:
            self._replace(self._node.live)
            if len(self._kept) >= MOST_KEPT:
                return self._first(kind)
            self._kept[key] = self._first(kind)
        return self._kept[key]

    def changed(self) -> None:
        if self._lag:
            self._seen.append(self._node.live)
            self._replace(self._seen[0])

    def _first(self, kind: str) -> Ref | None:
        """Slices by name, which is the order in which they are laid out; devices as listed."""
        listed = (ref for plan in self._slices.values() for ref in plan.devices)
        return self._node.first(self._node.spot(ref) for ref in listed if kind_of(ref) == kind)

    def _replace(self, live: Live) -> None:
        standing = tuple(self._slices.values())
        for plan in rerank(standing, self._node.boards, live, self._policy, behind=self._lag):
            self._put(plan)

    def _put(self, plan: SlicePlan) -> None:
        if plan.devices:
            self._slices[plan.what] = plan


def nvidia(boards: Sequence[Board]) -> list[Ref]:
    """GPU by GPU, the starts of each profile from the lowest up."""
    found: list[Ref] = []
    for board in boards:
        for profile in board.offer.profiles if board.offer else ():
            found += [
                Partition(gpu=board.uuid, profile=profile.name, start=s) for s in profile.starts
            ]
        found.append(Whole(gpu=board.uuid))
    return found


def static(boards: Sequence[Board]) -> list[Ref]:
    """What this driver publishes where it does not know the state: S*, whole GPUs from the end."""
    plans = lay_out(boards, make_order(boards, NOTHING, Policy.PACKED))
    return [ref for plan in plans for ref in plan.devices]


def kind_of(ref: Ref) -> str:
    """What a request names; the scheduler passes other devices over."""
    return WHOLE if isinstance(ref, Whole) else ref.profile
