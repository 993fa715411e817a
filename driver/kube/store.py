"""The local copy of a list, kept current by listings, watch events and our own writes.

Why it exists: a reconciler that has just written must not see the state from before its write, or
it writes again. So answers to writes are taken in at once. Two ways lead to ghosts, and one rule
closes both: never go back.

    an event older than what is stored        was overtaken by our write: ignored
    a write not newer than the watch's place  was already told by the watch, perhaps together
                                              with the deletion that followed: ignored

Versions are compared as numbers: Kubernetes documents them as comparable since 1.35, and they were
etcd revisions before. Where one is not a number nothing is newer than the watch, so own writes are
ignored and the copy is only as late as the watch.

Must not know: HTTP, threads but its own lock.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Lock, RLock

from driver.ports.kube import (
    Bookmark,
    Change,
    Deleted,
    JsonObject,
    Key,
    Listing,
    WatchEvent,
)

Callback = Callable[[Change], None]


class Store:
    """Safe for several threads. Callbacks run under a lock that keeps changes in order."""

    def __init__(self) -> None:
        self._order = RLock()  # held while a change is made and told
        self._lock = Lock()  # guards the dicts alone, so that readers never wait for a callback
        self._objects: dict[Key, JsonObject] = {}
        self._callbacks: dict[object, Callback] = {}
        self._place = ""
        self._synced = Event()

    def has_synced(self) -> bool:
        return self._synced.is_set()

    def wait_synced(self, timeout: float) -> bool:
        return self._synced.wait(timeout)

    def snapshot(self) -> tuple[JsonObject, ...]:
        with self._lock:
            return tuple(self._objects[key] for key in sorted(self._objects))

    def get(self, name: str, *, namespace: str = "") -> JsonObject | None:
        with self._lock:
            return self._objects.get((namespace, name))

    def subscribe(self, callback: Callback) -> Callable[[], None]:
        handle = object()
        with self._lock:
            self._callbacks[handle] = callback

        def undo() -> None:
            with self._lock:
                self._callbacks.pop(handle, None)

        return undo

    def replace(self, listing: Listing) -> None:
        """What is not listed is gone, unless we wrote it after the list was taken."""
        with self._order:
            self._place = listing.version
            listed = {key_of(obj): obj for obj in listing.items}
            for key, stored in list(self._objects.items()):
                if key not in listed and not _newer(_version(stored), than=listing.version):
                    self._put(key, None)
            for key, obj in listed.items():
                self._take(key, obj)
            self._synced.set()

    def feed(self, event: WatchEvent) -> None:
        with self._order:
            if isinstance(event, Bookmark):
                self._place = event.version
                return
            self._place = _version(event.obj)
            key = key_of(event.obj)
            if not isinstance(event, Deleted):
                self._take(key, event.obj)
            elif (stored := self._objects.get(key)) and not _newer(
                _version(stored), than=self._place
            ):
                self._put(key, None)

    def observe(self, obj: JsonObject) -> None:
        with self._order:
            if _newer(_version(obj), than=self._place):
                self._take(key_of(obj), obj)

    def _take(self, key: Key, obj: JsonObject) -> None:
        stored = self._objects.get(key)
        if stored is None or not (
            _version(stored) == _version(obj) or _newer(_version(stored), than=_version(obj))
        ):
            self._put(key, obj)

    def _put(self, key: Key, new: JsonObject | None) -> None:
        with self._lock:
            old = self._objects.pop(key, None)
            if new is not None:
                self._objects[key] = new
            callbacks = tuple(self._callbacks.values())
        for callback in callbacks:
            callback(Change(key=key, old=old, new=new))


def key_of(obj: JsonObject) -> Key:
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _version(obj: JsonObject) -> str:
    version: str = obj["metadata"]["resourceVersion"]
    return version


def _newer(version: str, *, than: str) -> bool:
    return version.isdecimal() and than.isdecimal() and int(version) > int(than)
