"""Keeps the node's slices as they should be: level-triggered, in as few writes as possible.

Wakes up when the hardware, a slice or an allocation changed (the kubelet deletes all slices of a
node when it starts), and now and then in any case. Then: live state, wanted pool, difference,
writes. A restart with nothing changed writes nothing.

No failure ends the process: prepared claims need the kubelet's socket more than the API needs us.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

from api.resource.codec import StoredSlice
from api.resource.types import Pool, Slice, Taint
from driver.core.choices import Choices
from driver.core.described import Described, describe_node
from driver.core.errors import ContractError, KubeConflict, KubeError, KubeInvalid
from driver.core.expressible import Taints, expressed
from driver.core.ids import ClaimUID, DeviceName
from driver.core.inventory import Inventory
from driver.core.ledger import Entry
from driver.core.occupancy import NOTHING
from driver.core.pools import kept_devices, offer
from driver.core.reorder import settle
from driver.core.rerank import MOST_BEHIND
from driver.observe.logs import Log
from driver.plugin.discover import Pauses
from driver.plugin.node import Hardware, Identity
from driver.plugin.publishing.agenda import BURST, Agenda
from driver.plugin.publishing.allocations import Allocations
from driver.plugin.publishing.counters import CountersDropped, CounterSupport
from driver.plugin.publishing.follower import AllocationMetrics, Follower, InUse
from driver.plugin.publishing.stored import StoredSlices
from driver.plugin.publishing.taints import TaintProbe
from driver.plugin.publishing.writes import SliceWriter, WriteMetrics
from driver.plugin.served import Served, ServedVersion
from driver.plugin.supervise import Wakeup
from driver.ports.kube import Change, JsonObject, KubeApi, Reflector

log = Log(__name__)

_FIRST_LIST: Final = 1.0
"""Seconds; longer would hold up the end of the process."""


class SliceMetrics(WriteMetrics, AllocationMetrics, Protocol):
    def set_published_devices(self, count: int) -> None: ...


class Publisher:
    """`follow` makes the reflector of our slices once the API version is known, and runs it; and
    that of claims, where the order follows allocations.

    `resync`: seconds between looks without a cause. `entries`: what the ledger holds. `sick`: the
    taints of devices that are not fit for work.
    """

    def __init__(
        self,
        *,
        identity: Identity,
        hardware: Hardware,
        api: KubeApi,
        served: ServedVersion,
        choices: Choices,
        follow: Callable[[Served], Reflector],
        allocations: Allocations,
        entries: Callable[[], Mapping[ClaimUID, Entry]],
        report: Callable[[str], None],
        metrics: SliceMetrics,
        resync: float,
        pauses: Pauses,
        wakeup: Wakeup,
        sick: Callable[[], Mapping[DeviceName, tuple[Taint, ...]]] = dict,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sick = sick
        self._identity = identity
        self._hardware = hardware
        self._served = served
        self._choices = choices
        self._follow = follow
        self._report = report
        self._metrics = metrics
        self._resync = resync
        self._pauses = pauses
        self._agenda = Agenda(wakeup, clock)
        self._follower = Follower(
            allocations,
            choices,
            entries=entries,
            driver=identity.driver,
            boot_id=identity.boot_id,
            metrics=metrics,
        )
        self._counters = CounterSupport(api)
        self._taints = TaintProbe(api)
        self._writer = SliceWriter(
            api,
            node=identity.node,
            metrics=metrics,
            wrote=self._agenda.wrote,
            answered=self._answered,
        )
        self._stored: StoredSlices | None = None
        self._listed: tuple[Inventory, Described] | None = None
        self._problem = ""
        self._prepared = 0
        self.taints: Taints = {}
        """Of all devices, as they were last wanted. For any thread to read."""

    def changed(self) -> None:
        """The hardware, or its health, is not as it was."""
        self._agenda.changed()

    def slice_changed(self, change: Change) -> None:
        self._agenda.stored(change.new["metadata"]["resourceVersion"] if change.new else "")

    def allocated(self) -> None:
        """Claims took or gave back devices."""
        self._agenda.allocated()

    def prepared(self, claims: int) -> None:
        """So many are prepared now; one less is about to give back its devices."""
        if claims < self._prepared:
            self._agenda.allocated()
        self._prepared = claims

    def run(self, stop: threading.Event) -> None:
        while self._agenda.wait(stop):
            self._agenda.looked(self.look())

    def look(self) -> float | None:
        """One reconciliation; seconds until the next one is due, None: when something happens."""
        try:
            done = self._reconcile()
        except ContractError as error:
            return self._failed(str(error), self._resync)
        except KubeInvalid as error:
            # The same object will be refused again; another try only when something changes.
            self._taints.refused()
            return self._failed(str(error), self._resync)
        except KubeConflict as error:
            # Somebody wrote in between: no failure, the watch tells what.
            log.info("slice was written by another", reason=str(error))
            return self._pauses.next()
        except KubeError as error:
            return self._failed(str(error), self._pauses.next())
        if done is None:
            return None if self._hardware.inventory is None else 0
        self._failed("", 0)
        self._pauses.reset()
        return done

    def _failed(self, problem: str, pause: float) -> float:
        if problem and problem != self._problem:
            log.error("slices cannot be published", reason=problem)
        self._problem = problem
        self._report(problem)
        return pause

    def _reconcile(self) -> float | None:
        """Seconds until the next look. None: too early; hardware wakes us when it is there, and the
        first lists we wait for.
        """
        served = self._served.get()
        if self._stored is None:
            self._stored = StoredSlices(self._follow(served))
        inventory = self._hardware.inventory
        if inventory is None or not self._stored.wait_synced(_FIRST_LIST):
            return None
        if not self._follower.wait_synced(_FIRST_LIST):
            return None
        stored = self._stored.read()
        described = self._described(inventory, stored, served)
        in_use = self._follower.look(described.inventory, self._hardware.foreign, self._sick())
        pool = self._wanted(described, stored, in_use, served)
        try:
            self._writer.write(pool, stored, served, self._stored)
        except CountersDropped:
            self._listed = None
            return 0
        self._metrics.set_published_devices(sum(len(s.devices) for s in pool.slices))
        # After a burst the static order stands; the true one follows when it is quiet.
        return BURST if in_use.behind else self._resync

    def _described(
        self, inventory: Inventory, stored: Collection[StoredSlice], served: Served
    ) -> Described:
        """Made once for an inventory; the hardware gives another object when it has changed."""
        if self._listed is not None and self._listed[0] is inventory:
            return self._listed[1]
        choices, driver, node = self._choices, self._identity.driver, self._identity.node
        made = describe_node(inventory, choices, driver=driver, node=node)
        if not self._counters.kept(made, stored, served, self._writer.owner):
            made = describe_node(inventory, choices, driver=driver, node=node, counters=False)
        self._listed = inventory, made
        return made

    def _answered(self, wanted: Slice, answer: JsonObject) -> None:
        self._counters.answered(wanted, answer)
        if not self._taints.answered(wanted, answer):
            self._agenda.changed()

    def _wanted(
        self,
        described: Described,
        stored: Collection[StoredSlice],
        in_use: InUse,
        served: Served,
    ) -> Pool:
        self.taints = in_use.taints
        support = self._taints.support(in_use.taints, described, served, self._writer.owner)
        shown = expressed(in_use.taints, support, in_use.devices)
        fresh = offer(
            described,
            live=in_use.soon if in_use.behind <= MOST_BEHIND else NOTHING,
            kept=kept_devices(stored, in_use=in_use.devices),
            taints=shown.taints,
            left_out=shown.left_out,
        )
        if not self._choices.follow:
            return fresh
        return settle(fresh, stored, described, in_use.soon, behind=in_use.behind)
