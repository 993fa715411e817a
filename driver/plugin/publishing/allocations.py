"""What the scheduler has given away of this node's pool: followed by watching claims.

Why it exists: the order of devices must follow the *allocation* of a claim; its preparation comes
later, and a burst would be placed by a stale order. Claims of all nodes pass by, since the server
has no selector for a pool; only what concerns our pool is kept.

Must not know what is done about a change.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from driver.core.ids import ClaimUID, DeviceName, PoolName
from driver.ports.kube import Change, JsonObject, Key, Reflector

DEVICES = "devices"


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
        DEVICES: devices,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What one claim gave back, then what it got."""

    released: tuple[DeviceName, ...] = ()
    taken: tuple[DeviceName, ...] = ()


class Allocations:
    """Attached to a reflector whose objects `trim` has made."""

    def __init__(self) -> None:
        self._reflector: Reflector | None = None
        self._on_change: Callable[[], None] = lambda: None
        self._on_end: Callable[[ClaimUID], None] = lambda _: None
        self._lock = threading.Lock()
        self._held: dict[Key, tuple[ClaimUID, tuple[DeviceName, ...]]] = {}
        self._moves: list[Moved] = []

    def follow(self, reflector: Reflector, *, on_change: Callable[[], None]) -> None:
        """Before the reflector runs. `on_change` is called when claims took or gave back devices
        of the pool.
        """
        self._reflector, self._on_change = reflector, on_change
        reflector.subscribe(self._heard)

    def subscribe_ends(self, on_end: Callable[[ClaimUID], None]) -> None:
        """Called with each claim that is gone, or holds nothing of the pool any more."""
        self._on_end = on_end

    def wait_synced(self, timeout: float) -> bool:
        return self._reflector is not None and self._reflector.wait_synced(timeout)

    def take(self) -> tuple[tuple[Moved, ...], frozenset[DeviceName]]:
        """What moved since the last call, in the server's order, and what is held after that."""
        with self._lock:
            moves, self._moves = self._moves, []
            held = frozenset(d for _, devices in self._held.values() for d in devices)
        return tuple(moves), held

    def claims(self) -> dict[ClaimUID, JsonObject]:
        """By UID, each with its identity and its devices; empty before the first list."""
        objects = self._reflector.snapshot() if self._reflector is not None else ()
        return {ClaimUID(obj["metadata"]["uid"]): obj for obj in objects}

    def _heard(self, change: Change) -> None:
        new: tuple[DeviceName, ...] = ()
        uid: ClaimUID | None = None
        if change.new and change.new[DEVICES]:
            new = tuple(DeviceName(d) for d in change.new[DEVICES])
            uid = ClaimUID(change.new["metadata"]["uid"])
        with self._lock:
            before, old = self._held.pop(change.key, (None, ()))
            if uid is not None:
                self._held[change.key] = uid, new
            if new != old:
                self._moves.append(Moved(released=old, taken=new))
        if new != old:
            self._on_change()
        if before is not None and before != uid:
            self._on_end(before)
