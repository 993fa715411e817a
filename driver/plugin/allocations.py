"""What the scheduler has given away of this node's pool: followed by watching claims.

Why it exists: the order of devices must follow the *allocation* of a claim; its preparation comes
later, and a burst would be placed by a stale order. Claims of all nodes pass by, since the server
has no selector for a pool; only what concerns our pool is kept.

Must not know what is done about a change.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from driver.core.ids import DeviceName, PoolName
from driver.ports.kube import Change, JsonObject, Reflector

_DEVICES = "devices"


def trim(obj: JsonObject, *, driver: str, pool: PoolName) -> JsonObject | None:
    """Of a claim, its identity and its devices in our pool; None where it has none."""
    allocation = (obj.get("status") or {}).get("allocation") or {}
    devices = tuple(
        result["device"]
        for result in (allocation.get("devices") or {}).get("results") or ()
        if result["driver"] == driver
        and result["pool"] == pool
        and not result.get("adminAccess", False)
    )
    if not devices:
        return None
    metadata = obj["metadata"]
    return {
        "metadata": {k: metadata[k] for k in ("name", "namespace", "uid", "resourceVersion")},
        _DEVICES: devices,
    }


class Allocations:
    """Attached to a reflector whose objects `trim` has made."""

    def __init__(self) -> None:
        self._reflector: Reflector | None = None
        self._on_change: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._events: list[tuple[DeviceName, ...]] = []

    def follow(self, reflector: Reflector, *, on_change: Callable[[], None]) -> None:
        """`on_change` is called when claims took or gave back devices of the pool."""
        self._reflector, self._on_change = reflector, on_change
        reflector.subscribe(self._heard)

    def wait_synced(self, timeout: float) -> bool:
        return self._reflector is not None and self._reflector.wait_synced(timeout)

    def devices(self) -> frozenset[DeviceName]:
        """All devices that claims hold now."""
        objects = self._reflector.snapshot() if self._reflector is not None else ()
        return frozenset(DeviceName(d) for obj in objects for d in obj[_DEVICES])

    def take_new(self) -> tuple[tuple[DeviceName, ...], ...]:
        """What was allocated since the last call, a tuple a claim; a release is an empty one."""
        with self._lock:
            events, self._events = self._events, []
            return tuple(events)

    def _heard(self, change: Change) -> None:
        new = tuple(DeviceName(d) for d in change.new[_DEVICES]) if change.new else ()
        old = tuple(DeviceName(d) for d in change.old[_DEVICES]) if change.old else ()
        if new == old:
            return
        with self._lock:
            self._events.append(new)
        self._on_change()
