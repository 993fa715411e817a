"""Brings what is stored to what is wanted: plans the writes and carries them out, in their order.

Must not know where the wanted pool comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Final, Protocol

from api.resource.codec import DeviceEncoder, NodeOwner, StoredSlice, encode_slice
from api.resource.types import Pool, Slice
from driver.core.diff import Delete, Put, Write, plan_writes
from driver.core.errors import KubeNotFound
from driver.observe.logs import Log
from driver.plugin.publishing.stored import StoredSlices
from driver.plugin.served import Served
from driver.ports.kube import JsonObject, KubeApi
from driver.ports.resources import NODES

log = Log(__name__)

_AT_ONCE: Final = 8
"""Writes side by side; a node has fewer slices that change in place."""


class WriteMetrics(Protocol):
    def slice_written(self, verb: str, reason: str) -> None: ...


class SliceWriter:
    """`wrote` is told the version of each write before the copy of the server's slices is.
    `answered`: what was sent, and what the server made of it; what it raises ends the writes.
    """

    def __init__(
        self,
        api: KubeApi,
        *,
        node: str,
        metrics: WriteMetrics,
        wrote: Callable[[str], None],
        answered: Callable[[Slice, JsonObject], None] = lambda *_: None,
    ) -> None:
        self._api = api
        self._node = node
        self._metrics = metrics
        self._wrote = wrote
        self._answered = answered
        self._owner: NodeOwner | None = None
        self._encoder = DeviceEncoder()
        self._threads = ThreadPoolExecutor(_AT_ONCE, "slice writer")

    def write(
        self, pool: Pool, stored: Collection[StoredSlice], served: Served, into: StoredSlices
    ) -> None:
        writes = self._plan(pool, stored)
        if len(writes) > 1 and self._only_in_place(writes):
            # Whichever mixture a reader sees, each device is in it once; so none need wait.
            done = [self._threads.submit(self._execute, w, pool, served, into) for w in writes]
            wait(done)
            for each in done:
                each.result()
        else:
            for write in writes:
                self._execute(write, pool, served, into)
        if writes:
            log.info("slices published", pool=pool.name, writes=len(writes))

    def owner(self) -> NodeOwner:
        """As it was last read; nobody who only tries something needs a newer one."""
        return self._owner or self._read_owner()

    def _read_owner(self) -> NodeOwner:
        node = self._api.get(NODES, self._node)
        self._owner = NodeOwner(name=self._node, uid=node["metadata"]["uid"])
        return self._owner

    def _plan(self, pool: Pool, stored: Collection[StoredSlice]) -> list[Write]:
        """The Node is read again before anything is made: it may have been made anew. Orders and
        taints that change in place have no time for that, and keep the owner that is stored.
        """
        if self._owner is not None:
            writes = plan_writes(pool, stored, owner=self._owner)
            if self._only_in_place(writes):
                return writes
        return plan_writes(pool, stored, owner=self._read_owner())

    def _only_in_place(self, writes: Collection[Write]) -> bool:
        return all(
            isinstance(w, Put) and w.over is not None and w.over.owner == self._owner and w.in_place
            for w in writes
        )

    def _execute(self, write: Write, pool: Pool, served: Served, into: StoredSlices) -> None:
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
                    owner=self.owner(),
                    version=served.version,
                    over=over,
                    encoder=self._encoder,
                )
                send = self._api.create if over is None else self._api.replace
                answer = send(served.slices, body)
                self._wrote(answer["metadata"]["resourceVersion"])
                into.wrote(body, answer, wanted)
                self._tell("create" if over is None else "replace", wanted.name, reason)
                self._answered(wanted, answer)

    def _tell(self, verb: str, name: str, reason: str) -> None:
        log.info("slice written", verb=verb, slice=name, reason=reason)
        self._metrics.slice_written(verb, reason)
