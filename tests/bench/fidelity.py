"""Was each allocation the policy's choice? Judged from what the API server told, in its own order.

Why it exists: the plugin judges by what it knew; a plugin that is late believes in its own order.
Here the true state is that of the API server before each allocation, whoever had heard of it. Pure:
events in, figures out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from driver.core.ids import DeviceName
from driver.core.inventory import Inventory
from driver.core.occupancy import NOTHING, Live, Partition, Ref, Whole
from driver.core.packing import WHOLE, Policy, make_order

FAR_BEHIND: Final = 10
"""Events; what none of the last ten orders leads to counts as so late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A claim got this device, or gave it back (`device` None). `at`: seconds, when heard of."""

    claim: str
    device: DeviceName | None
    at: float = 0.0


def lags(inventory: Inventory, events: Iterable[Taken], policy: Policy) -> tuple[int, ...]:
    """For each allocation, by how many events the order was late that led to it. 0: it was not."""
    held: dict[str, Ref] = {}
    states = [NOTHING]
    found = []
    for event in events:
        live = states[-1]
        if event.device is None:
            ref = held.pop(event.claim)
            states.append(_without(live, ref))
            continue
        ref = inventory.devices[event.device].ref
        held[event.claim] = ref
        found.append(_lag(inventory, states, ref, policy))
        states.append(_with(live, ref))
    return tuple(found)


def gaps(events: Sequence[Taken]) -> tuple[float, ...]:
    """For each allocation, seconds since the event before it; the first has none before it."""
    before = [math.inf, *(e.at for e in events)]
    return tuple(
        abs(event.at - earlier)
        for earlier, event in zip(before, events, strict=False)
        if event.device is not None
    )


def fidelity(behind: Sequence[int]) -> float:
    return sum(1 for lag in behind if lag == 0) / len(behind)


def percentile(values: Sequence[int], share: float) -> int:
    """The smallest value that at least this share of all do not exceed."""
    ordered = sorted(values)
    return ordered[math.ceil(len(ordered) * share) - 1]


def _lag(inventory: Inventory, states: Sequence[Live], ref: Ref, policy: Policy) -> int:
    """A late scheduler takes the first device of an old order that can be taken now."""
    kind = WHOLE if isinstance(ref, Whole) else ref.profile
    free = make_order(inventory.boards, states[-1], policy).ranked(kind).feasible
    for behind, live in enumerate(reversed(states[-FAR_BEHIND:])):
        old = make_order(inventory.boards, live, policy).ranked(kind)
        if next((r for r in (*old.feasible, *old.blocked) if r in free), None) == ref:
            return behind
    return FAR_BEHIND


def _with(live: Live, ref: Ref) -> Live:
    match ref:
        case Partition():
            return replace(live, partitions=live.partitions | {ref})
        case Whole(gpu=gpu):
            return replace(live, whole=live.whole | {gpu})


def _without(live: Live, ref: Ref) -> Live:
    match ref:
        case Partition():
            return replace(live, partitions=live.partitions - {ref})
        case Whole(gpu=gpu):
            return replace(live, whole=live.whole - {gpu})


@dataclass(slots=True, kw_only=True)
class Pools:
    """Counts the states in which a scheduler would pass over the pool, once it was complete."""

    incomplete: int = 0
    writes: int = 0
    complete: bool = False
    _slices: dict[str, tuple[int, int]] = field(default_factory=dict)

    def see(self, name: str, pool: tuple[int, int] | None) -> None:
        """`pool`: generation and count of slices that this slice tells; None: it is gone."""
        if pool is None:
            self._slices.pop(name, None)
        else:
            self._slices[name] = pool
        self.writes += self.complete
        whole = self._whole()
        self.incomplete += self.complete and not whole
        self.complete = self.complete or whole

    def _whole(self) -> bool:
        """As the scheduler sees it: only the newest generation counts, and all of it is needed."""
        generations = Counter(generation for generation, _ in self._slices.values())
        newest = max(generations, default=0)
        counts = {count for generation, count in self._slices.values() if generation == newest}
        return counts == {generations[newest]}
