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

from api.resource.codec import NodeOwner, StoredSlice, decode_stored, encode_slice
from api.resource.types import Pool
from driver.core.choices import Choices
from driver.core.diff import Delete, Put, Write, plan_writes
from driver.core.errors import ContractError, KubeConflict, KubeError, KubeInvalid, KubeNotFound
from driver.core.ids import ClaimUID, DeviceName, SliceName
from driver.core.inventory import Inventory, without_counters
from driver.core.ledger import Entry
from driver.core.live import live_state, withholding_taints
from driver.core.occupancy import NOTHING, Live
from driver.core.pools import Kept, build_pool
from driver.core.reorder import settle, was_choice
from driver.core.rerank import MOST_BEHIND
from driver.observe.logs import Log
from driver.plugin.allocations import Allocations
from driver.plugin.discover import Pauses
from driver.plugin.node import Hardware, Identity
from driver.plugin.served import Served, ServedVersion
from driver.plugin.supervise import Wakeup
from driver.ports.kube import KubeApi, Reflector
from driver.ports.resources import NODES

log = Log(__name__)

_FIRST_LIST: Final = 1.0
"""Seconds; longer would hold up the end of the process."""
_BURST: Final = 0.1
"""Seconds between two orders that follow allocations. The first of a burst is followed at once: at
one allocation a second, waiting costs more fidelity than it saves writes (docs/benchmarks.md)."""


class SliceMetrics(Protocol):
    def slice_written(self, verb: str, reason: str) -> None: ...

    def set_published_devices(self, count: int) -> None: ...

    def allocated(self, *, as_chosen: bool) -> None: ...


class Publisher:
    """`follow` makes the reflector of our slices once the API version is known, and runs it; and
    that of claims, where the order follows allocations.

    `resync`: seconds between looks without a cause. `entries`: what the ledger holds.
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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._identity = identity
        self._hardware = hardware
        self._api = api
        self._served = served
        self._choices = choices
        self._follow = follow
        self._allocations = allocations
        self._entries = entries
        self._report = report
        self._metrics = metrics
        self._resync = resync
        self._pauses = pauses
        self._wakeup = wakeup
        self._clock = clock
        self._reflector: Reflector | None = None
        self._owner: NodeOwner | None = None
        self._problem = ""
        self._live: Live | None = None
        self._counters: bool | None = None
        self._settles_at: float | None = None
        self._followed_at = -_BURST

    def changed(self) -> None:
        """Hardware or slices are not as they were: look at once."""
        self._settles_at = None
        self._wakeup.wake()

    def allocated(self) -> None:
        """Claims took or gave back devices: look at once, but not again and again in a burst."""
        if self._settles_at is None:
            self._settles_at = self._followed_at + _BURST
        self._wakeup.wake()

    def run(self, stop: threading.Event) -> None:
        pause: float | None = 0
        while not stop.is_set():
            self._wakeup.wait(pause)
            settles_at = self._settles_at
            if settles_at is not None and (rest := settles_at - self._clock()) > 0:
                pause = rest
                continue
            if settles_at is not None:
                self._settles_at, self._followed_at = None, self._clock()
            pause = self.look()

    def look(self) -> float | None:
        """One reconciliation; seconds until the next one is due, None: when something happens."""
        try:
            done = self._reconcile()
        except ContractError as error:
            return self._failed(str(error), self._resync)
        except KubeInvalid as error:
            # The same object will be refused again; another try only when something changes.
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
        if self._reflector is None:
            self._reflector = self._follow(served)
        inventory = self._hardware.inventory
        if inventory is None or not self._reflector.wait_synced(_FIRST_LIST):
            return None
        if self._choices.follow and not self._allocations.wait_synced(_FIRST_LIST):
            return None
        stored = [decode_stored(obj) for obj in self._reflector.snapshot()]
        if not self._keeps_counters(inventory, stored, served):
            inventory = without_counters(inventory)
        pool, pause = self._wanted(inventory, stored)
        writes = self._plan(pool, stored)
        for write in writes:
            self._execute(write, pool, served)
        if writes:
            log.info("slices published", pool=pool.name, writes=len(writes))
        self._metrics.set_published_devices(sum(len(s.devices) for s in pool.slices))
        return pause

    def _keeps_counters(
        self, inventory: Inventory, stored: Collection[StoredSlice], served: Served
    ) -> bool:
        """Whether the server stores counters; before 1.36 it drops them in silence by default. What
        is stored answers that, else a creation that is only tried.
        """
        if self._counters is None and inventory.counters:
            known = any(s.content and s.content.counter_sets for s in stored)
            # Only an answer is remembered: a server that is away has not dropped anything.
            self._counters = known or self._try_counters(inventory, served)
            if not self._counters:
                log.error(
                    "this server drops counters (feature DRAPartitionableDevices): whole GPUs and"
                    " partitions that are there already are published, none is made on demand"
                )
        return self._counters is not False

    def _try_counters(self, inventory: Inventory, served: Served) -> bool:
        pool = build_pool(inventory, driver=self._identity.driver, node=self._identity.node)
        first = next(s for s in pool.slices if s.counter_sets)
        self._owner = self._read_owner()
        body = encode_slice(
            first, pool=pool, generation=1, owner=self._owner, version=served.version
        )
        body["metadata"]["name"] += "-try"
        return bool(
            self._api.create(served.slices, body, dry_run=True)["spec"].get("sharedCounters")
        )

    def _wanted(self, inventory: Inventory, stored: Collection[StoredSlice]) -> tuple[Pool, float]:
        """The pool to publish, and seconds until it should be looked at again."""
        # What an earlier boot handed out holds nothing any more.
        entries = [e for e in self._entries().values() if e.boot_id == self._identity.boot_id]
        foreign = self._hardware.foreign
        live = NOTHING
        behind = 0
        if self._choices.follow:
            news = self._allocations.take_new()
            behind = self._judge(inventory, news)
            live = live_state(inventory, self._allocations.devices(), entries, foreign)
            self._live = live
        in_use = {h.device for e in entries for h in e.holdings}
        fresh = build_pool(
            inventory,
            driver=self._identity.driver,
            node=self._identity.node,
            live=live if behind <= MOST_BEHIND else NOTHING,
            choices=self._choices,
            kept=kept_devices(stored, in_use=in_use | self._allocations.devices()),
            taints=withholding_taints(
                inventory, live, foreign, self._choices, driver=self._identity.driver
            ),
        )
        if not self._choices.follow:
            return fresh, self._resync
        pool = settle(fresh, stored, inventory, live, self._choices, behind=behind)
        # After a burst the static order stands; the true one follows when it is quiet.
        return pool, self._resync if behind == 0 else _BURST

    def _judge(self, inventory: Inventory, news: Collection[tuple[DeviceName, ...]]) -> int:
        """Counts how many allocations were the policy's choice; how many events there were, but
        for those that we have followed one by one.
        """
        live = self._live
        for devices in news:
            if devices and live is not None:
                chosen, live = was_choice(inventory, live, devices, self._choices)
                self._metrics.allocated(as_chosen=chosen)
        return len(news) if self._live is not None and len(news) > 1 else 0

    def _plan(self, pool: Pool, stored: Collection[StoredSlice]) -> list[Write]:
        """The Node is read again before anything is written: it may have been made anew."""
        if self._owner is not None and not plan_writes(pool, stored, owner=self._owner):
            return []
        self._owner = self._read_owner()
        return plan_writes(pool, stored, owner=self._owner)

    def _read_owner(self) -> NodeOwner:
        node = self._api.get(NODES, self._identity.node)
        return NodeOwner(name=self._identity.node, uid=node["metadata"]["uid"])

    def _execute(self, write: Write, pool: Pool, served: Served) -> None:
        assert self._reflector is not None and self._owner is not None  # noqa: S101, PT018
        match write:
            case Delete(stored=stored, reason=reason):
                try:
                    self._api.delete(
                        served.slices,
                        stored.name,
                        uid=stored.uid,
                        version=stored.resource_version,
                    )
                except KubeNotFound:
                    return
                self._tell("delete", stored.name, reason)
            case Put(wanted=wanted, generation=generation, over=over, reason=reason):
                body = encode_slice(
                    wanted,
                    pool=pool,
                    generation=generation,
                    owner=self._owner,
                    version=served.version,
                    over=over,
                )
                send = self._api.create if over is None else self._api.replace
                self._reflector.observe(send(served.slices, body))
                self._tell("create" if over is None else "replace", wanted.name, reason)

    def _tell(self, verb: str, name: str, reason: str) -> None:
        log.info("slice written", verb=verb, slice=name, reason=reason)
        self._metrics.slice_written(verb, reason)


def kept_devices(
    stored: Collection[StoredSlice], *, in_use: Collection[DeviceName]
) -> tuple[Kept, ...]:
    """What is published now and held by a claim; it must not vanish with its GPU."""
    counters = {
        c.name: (SliceName(s.name), c)
        for s in stored
        if s.content is not None
        for c in s.content.counter_sets
    }
    return tuple(
        Kept(
            slice=SliceName(each.name),
            position=position,
            device=device,
            counters=tuple(
                counters[c.counter_set] for c in device.consumes if c.counter_set in counters
            ),
        )
        for each in stored
        if each.content is not None
        for position, device in enumerate(each.content.devices)
        if device.name in in_use
    )
