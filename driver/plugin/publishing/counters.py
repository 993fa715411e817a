"""Whether the server stores counters; before 1.36 it drops them by default, in silence.

Why it matters: without them a GPU and its partitions would be given out side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from api.resource.codec import NodeOwner, StoredSlice, encode_slice
from api.resource.types import Slice
from driver.core.described import Described
from driver.core.names import TRIED, slice_name
from driver.observe.logs import Log
from driver.plugin.served import Served
from driver.ports.kube import JsonObject, KubeApi

log = Log(__name__)


class CountersDropped(Exception):
    """What else belongs to this pool must not be written: its devices would exclude nothing."""


class CounterSupport:
    """Asks once; only an answer is remembered: a server that is away has not dropped anything.

    Each write is an answer too: the feature may be switched off later on, and the counters of what
    is made anew are gone then.
    """

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._kept: bool | None = None

    def kept(
        self,
        described: Described,
        stored: Collection[StoredSlice],
        served: Served,
        owner: Callable[[], NodeOwner],
    ) -> bool:
        """What is stored answers it, else a creation that is only tried. True without a counter."""
        if not described.counter_sets:
            return True
        if self._kept is None:
            known = any(s.content and s.content.counter_sets for s in stored)
            self._learn(known or self._try(described, served, owner()))
        return bool(self._kept)

    def answered(self, wanted: Slice, answer: JsonObject) -> None:
        """CountersDropped where a write lost its counters and that is news."""
        if self._kept is not False and not _has_them(wanted, answer["spec"]):
            self._learn(False)
            raise CountersDropped(wanted.name)

    def _learn(self, kept: bool) -> None:
        self._kept = kept
        if not kept:
            log.error(
                "this server drops counters (feature DRAPartitionableDevices): whole GPUs and"
                " partitions that are there already are published, none is made on demand"
            )

    def _try(self, described: Described, served: Served, owner: NodeOwner) -> bool:
        pool = described.pool()
        first = next(s for s in pool.slices if s.counter_sets)
        tried = replace(first, name=slice_name(pool.node, pool.driver, TRIED, "try"))
        body = encode_slice(tried, pool=pool, generation=1, owner=owner, version=served.version)
        answer = self._api.create(served.slices, body, dry_run=True)
        return bool(answer["spec"].get("sharedCounters"))


def _has_them(wanted: Slice, stored: JsonObject) -> bool:
    if wanted.counter_sets:
        return bool(stored.get("sharedCounters"))
    if not any(d.consumes for d in wanted.devices):
        return True
    devices = stored.get("devices") or ()
    return any((device.get("basic") or device).get("consumesCounters") for device in devices)
