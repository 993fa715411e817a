"""An API server for ResourceSlices in a dict, and a reader who must never be misled.

It does what the real one does to what it is sent: quantities are respelled, the time of a taint is
filled in, an object gets a UID and versions, and a write needs the version that it was based on.
"""

import copy
from typing import Any

from api.resource.codec import NodeOwner, StoredSlice, decode_stored, encode_slice
from api.resource.types import Pool
from driver.core.diff import Delete, Write

View = frozenset[Any] | None
"""The content of a complete pool, slice by slice; None where the scheduler skips the pool."""


class Server:
    def __init__(self, version: str = "v1") -> None:
        self.version = version
        self.objects: dict[str, dict[str, Any]] = {}
        self.writes = 0

    def stored(self) -> list[StoredSlice]:
        return [decode_stored(obj) for obj in self.objects.values()]

    def apply(self, write: Write, pool: Pool, owner: NodeOwner) -> None:
        if isinstance(write, Delete):
            self._check(write.stored)
            del self.objects[write.stored.name]
            return
        obj = encode_slice(
            write.wanted,
            pool=pool,
            generation=write.generation,
            owner=owner,
            version=self.version,
            over=write.over,
        )
        name = write.wanted.name
        if write.over is None:
            assert name not in self.objects, f"409: {name} exists"
        else:
            self._check(write.over)
            before, after = self.objects[name]["spec"], obj["spec"]
            for fixed in ("driver", "nodeName"):
                assert before[fixed] == after[fixed], f"422: {fixed} is immutable"
            assert before["pool"]["name"] == after["pool"]["name"], "422: pool.name is immutable"
        self.put(obj)

    def put(self, obj: dict[str, Any]) -> None:
        self.writes += 1
        stored = canonical(obj, f"2026-01-01T00:00:{self.writes % 60:02d}Z")
        stored["metadata"] |= {
            "uid": stored["metadata"].get("uid", f"uid-{self.writes}"),
            "resourceVersion": str(self.writes),
        }
        self.objects[stored["metadata"]["name"]] = stored

    def _check(self, based_on: StoredSlice) -> None:
        now = self.objects[based_on.name]["metadata"]
        assert (now["uid"], now["resourceVersion"]) == (based_on.uid, based_on.resource_version)

    def newest(self, pool: str) -> int:
        return max((s.generation for s in self.stored() if s.pool == pool), default=0)

    def view(self, pool: str) -> View:
        """What a scheduler takes: the slices of the newest generation, if that is all of them."""
        of_pool = [s for s in self.stored() if s.pool == pool]
        latest = [s for s in of_pool if s.generation == self.newest(pool)]
        complete = len(latest) in {s.count for s in latest}
        return frozenset((s.name, s.content) for s in latest) if complete else None


def canonical(obj: dict[str, Any], now: str) -> dict[str, Any]:
    """The object as it is stored; the argument stays as it is."""
    stored = copy.deepcopy(obj)
    spec = stored["spec"]
    devices = [d.get("basic", d) for d in spec.get("devices", ())]
    amounts = [d.get("capacity", {}) for d in devices]
    amounts += [c["counters"] for d in devices for c in d.get("consumesCounters", ())]
    amounts += [s["counters"] for s in spec.get("sharedCounters", ())]
    for entry in (e for each in amounts for e in each.values()):
        entry["value"] = respelled(entry["value"])
    for taint in (t for d in devices for t in d.get("taints", ())):
        taint.setdefault("timeAdded", now)
    return stored


def respelled(quantity: str) -> str:
    """Decimal quantities lose their zeros to a suffix: `16000` is stored as `16k`."""
    if not quantity.isdigit():
        return quantity
    for suffix in ("", "k", "M", "G", "T", "P"):
        if not quantity.endswith("000") or quantity == "000":
            return quantity + suffix
        quantity = quantity[:-3]
    return quantity + "E"
