"""What is in use or withheld on this node now, and whether each allocation was what the policy
would take.

Why it exists: the order that is published follows from the first, and how well it does that is told
by the second. Must not know slices.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from driver.core.choices import Choices
from driver.core.expressible import Taints
from driver.core.ids import ClaimUID, DeviceName
from driver.core.inventory import Inventory
from driver.core.ledger import Entry
from driver.core.live import Foreign, live_state
from driver.core.occupancy import NOTHING, Live
from driver.core.reorder import was_choice, without
from driver.core.withheld import withhold
from driver.plugin.publishing.allocations import Allocations, Moved


class AllocationMetrics(Protocol):
    def allocated(self, *, as_chosen: bool) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class InUse:
    """`live`: what is in use now; `soon`: without what is about to be given back, for the order.
    `devices`: held by a claim or by our ledger. `taints`: of what is withheld or sick. `behind`:
    how many events came at once, 0 where they are followed one by one.
    """

    live: Live
    soon: Live
    devices: frozenset[DeviceName]
    taints: Taints
    behind: int = 0


class Follower:
    """For one thread. `entries`: what the ledger holds; what an earlier boot handed out holds
    nothing any more.

    Without claims to follow, what is prepared is all that is known, and the order follows nothing.
    """

    def __init__(
        self,
        allocations: Allocations,
        choices: Choices,
        *,
        entries: Callable[[], Mapping[ClaimUID, Entry]],
        driver: str,
        boot_id: str,
        metrics: AllocationMetrics,
    ) -> None:
        self._allocations = allocations
        self._choices = choices
        self._entries = entries
        self._driver = driver
        self._boot_id = boot_id
        self._metrics = metrics
        self._before: tuple[Inventory, Live] | None = None
        self._prepared = frozenset[DeviceName]()
        self._leaving = frozenset[DeviceName]()

    def wait_synced(self, timeout: float) -> bool:
        return not self._choices.follow or self._allocations.wait_synced(timeout)

    def look(self, inventory: Inventory, foreign: Collection[Foreign], sick: Taints) -> InUse:
        entries = [e for e in self._entries().values() if e.boot_id == self._boot_id]
        prepared = frozenset(h.device for e in entries for h in e.holdings)
        moves, allocated = self._allocations.take()
        taints, live = withhold(
            inventory,
            live_state(inventory, allocated, entries, foreign),
            foreign,
            sick,
            self._choices,
            driver=self._driver,
        )
        if not self._choices.follow:
            return InUse(live=live, soon=NOTHING, devices=prepared, taints=taints)
        behind = len(moves) if self._before is not None and len(moves) > 1 else 0
        self._judge(moves)
        self._before = inventory, live
        leaving = self._expect(moves, allocated, prepared)
        return InUse(
            live=live,
            soon=without(inventory, live, leaving),
            devices=allocated | prepared,
            taints=taints,
            behind=behind,
        )

    def _expect(
        self,
        moves: Collection[Moved],
        allocated: frozenset[DeviceName],
        prepared: frozenset[DeviceName],
    ) -> frozenset[DeviceName]:
        """Devices that the kubelet has given back: their claims follow within moments, when the pod
        is gone from the API. An order that waits for that comes too late for the next pod.
        """
        gone = self._leaving | (self._prepared - prepared)
        released = {device for each in moves for device in each.released}
        self._prepared = prepared
        self._leaving = gone & (allocated - prepared - released)
        return self._leaving

    def _judge(self, moves: Collection[Moved]) -> None:
        """Each allocation in the state just before it, as the server's order of events has it; and
        among the devices that were published then.
        """
        if self._before is None:
            return
        inventory, live = self._before
        for each in moves:
            live = without(inventory, live, each.released)
            if each.taken:
                chosen, live = was_choice(inventory, live, each.taken, self._choices)
                self._metrics.allocated(as_chosen=chosen)
