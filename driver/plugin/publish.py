"""Keeps the node's slices as they should be: level-triggered, in as few writes as possible.

Wakes up when the hardware or a slice changed (ours or by others: the kubelet deletes all slices of
a node when it starts), and now and then in any case. Then: wanted pool, stored slices, difference,
writes. A restart with nothing changed writes nothing.

No failure ends the process: prepared claims need the kubelet's socket more than the API needs us.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Final, Protocol

from api.resource.codec import NodeOwner, StoredSlice, decode_stored, encode_slice
from api.resource.types import Device, Pool
from driver.core.diff import Delete, Put, Write, plan_writes
from driver.core.errors import ContractError, KubeError, KubeInvalid, KubeNotFound
from driver.core.ids import DeviceName
from driver.core.inventory import Inventory
from driver.core.pools import build_pool
from driver.observe.logs import Log
from driver.plugin.discover import Pauses
from driver.plugin.node import Hardware, Identity
from driver.plugin.served import Served, ServedVersion
from driver.plugin.supervise import Wakeup
from driver.ports.kube import KubeApi, Reflector
from driver.ports.resources import NODES

log = Log(__name__)

_FIRST_LIST: Final = 1.0
"""Seconds; longer would hold up the end of the process."""


class SliceMetrics(Protocol):
    def slice_written(self, verb: str, reason: str) -> None: ...

    def set_published_devices(self, count: int) -> None: ...


class Publisher:
    """`follow` makes the reflector of our slices once the API version is known, and runs it.

    `resync`: seconds between looks without a cause. `in_use`: devices that the ledger holds.
    """

    def __init__(
        self,
        *,
        identity: Identity,
        hardware: Hardware,
        api: KubeApi,
        served: ServedVersion,
        follow: Callable[[Served, Callable[[], None]], Reflector],
        in_use: Callable[[], Collection[DeviceName]],
        report: Callable[[str], None],
        metrics: SliceMetrics,
        resync: float,
        pauses: Pauses,
        wakeup: Wakeup,
    ) -> None:
        self._identity = identity
        self._hardware = hardware
        self._api = api
        self._served = served
        self._follow = follow
        self._in_use = in_use
        self._report = report
        self._metrics = metrics
        self._resync = resync
        self._pauses = pauses
        self._wakeup = wakeup
        self._reflector: Reflector | None = None
        self._owner: NodeOwner | None = None
        self._problem = ""

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self._wakeup.wait(self.look())

    def look(self) -> float | None:
        """One reconciliation; seconds until the next one is due, None: when something happens."""
        try:
            done = self._reconcile()
        except ContractError as error:
            return self._failed(str(error), self._resync)
        except KubeInvalid as error:
            # The same object will be refused again; another try only when something changes.
            return self._failed(str(error), self._resync)
        except KubeError as error:
            return self._failed(str(error), self._pauses.next())
        if not done:
            return None if self._hardware.inventory is None else 0
        self._failed("", 0)
        self._pauses.reset()
        return self._resync

    def _failed(self, problem: str, pause: float) -> float:
        if problem and problem != self._problem:
            log.error("slices cannot be published", reason=problem)
        self._problem = problem
        self._report(problem)
        return pause

    def _reconcile(self) -> bool:
        """False: too early. Hardware wakes us when it is there; the first list we wait for."""
        served = self._served.get()
        if self._reflector is None:
            self._reflector = self._follow(served, self._wakeup.wake)
        inventory = self._hardware.inventory
        if inventory is None or not self._reflector.wait_synced(_FIRST_LIST):
            return False
        stored = [decode_stored(obj) for obj in self._reflector.snapshot()]
        pool = self._wanted(inventory, stored)
        writes = self._plan(pool, stored)
        for write in writes:
            self._execute(write, pool, served)
        if writes:
            log.info("slices published", pool=pool.name, writes=len(writes))
        self._metrics.set_published_devices(sum(len(s.devices) for s in pool.slices))
        return True

    def _wanted(self, inventory: Inventory, stored: Collection[StoredSlice]) -> Pool:
        return build_pool(
            inventory,
            driver=self._identity.driver,
            node=self._identity.node,
            kept=kept_devices(stored, in_use=self._in_use()),
        )

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
) -> tuple[Device, ...]:
    """What is published now and held by a claim here; it must not vanish with its GPU."""
    return tuple(
        device
        for each in stored
        if each.content is not None
        for device in each.content.devices
        if device.name in in_use
    )
