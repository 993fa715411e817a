"""Objects by key, and every change to them in order: what a list and a watch are served from."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

from hack.fakeapi.kinds import Kind

Obj = dict[str, Any]
Key = tuple[Kind, str, str]

KEPT: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    version: int
    kind: Kind
    old: Obj | None
    new: Obj | None
    """Neither is changed ever again. For a deletion `old` has the version of the deletion."""


class Follower(Protocol):
    def pull(self) -> None: ...

    def close(self) -> None: ...


class History:
    """`changed` is the one lock of the server's state; hold it for anything but `wait`."""

    def __init__(self, *, first: int = 1) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.version = first
        self.compacted = 0
        self.watchers: set[Follower] = set()
        self._objects: dict[Key, Obj] = {}
        self._changes: list[Change] = []

    def get(self, key: Key) -> Obj | None:
        return self._objects.get(key)

    def of(self, kind: Kind) -> Iterator[Obj]:
        """In order of namespace and name, as the real store."""
        keys = sorted((k for k in self._objects if k[0] == kind), key=lambda k: k[1:])
        return (self._objects[k] for k in keys)

    def put(self, key: Key, new: Obj | None) -> Obj:
        """Store, or delete where `new` is None. Returns what watchers are told."""
        old = self._objects.pop(key, None)
        self.version += 1
        told = dict(new if new is not None else old or {})
        told["metadata"] = {**told["metadata"], "resourceVersion": str(self.version)}
        if new is not None:
            self._objects[key] = told
        self._changes.append(
            Change(
                version=self.version,
                kind=key[0],
                old=old if new is not None else told,
                new=told if new is not None else None,
            )
        )
        if len(self._changes) > KEPT:
            self.compact(self._changes[KEPT // 2].version)
        self.changed.notify_all()
        return told

    def since(self, version: int) -> list[Change]:
        start = bisect_right(self._changes, version, key=lambda change: change.version)
        return self._changes[start:]

    def compact(self, version: int | None = None) -> None:
        """Forget changes up to `version`, or all: a watch from before it gets 410."""
        for watcher in self.watchers:
            watcher.pull()
        self.compacted = self.version if version is None else version
        self._changes = self.since(self.compacted)
        self.changed.notify_all()
