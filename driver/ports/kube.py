"""The Kubernetes API as the use cases see it: dicts in, dicts out, no client library.

Objects stay plain JSON: a typed model drops fields that a newer server knows, and a read, change
and write through it would delete them. What is read often is parsed once, by `api.resource`.

Must not know: HTTP, paths, the client library. Every method may raise a `KubeError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Event
from types import TracebackType
from typing import Protocol, Self

from api.resource import codec

JsonObject = codec.JsonObject
Key = tuple[str, str]
"""(namespace, name); the namespace is empty for cluster-scoped objects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One kind at one version. `group` is empty for the core group."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = False

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A consistent list, and the version from which a watch continues it."""

    items: tuple[JsonObject, ...]
    version: str


@dataclass(frozen=True, slots=True)
class Added:
    obj: JsonObject


@dataclass(frozen=True, slots=True)
class Modified:
    obj: JsonObject


@dataclass(frozen=True, slots=True)
class Deleted:
    """`obj` is the last state, with the version of the deletion."""

    obj: JsonObject


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Nothing happened up to `version`."""

    version: str


WatchEvent = Added | Modified | Deleted | Bookmark


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ServerVersion:
    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


class WatchStream(Protocol):
    """One watch connection. Ends when the server ends it; an ERROR event raises a `KubeError`."""

    def __iter__(self) -> Iterator[WatchEvent]: ...

    def close(self) -> None:
        """From any thread: a reader that is blocked returns at once."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class KubeApi(Protocol):
    """Safe to call from several threads. Every call ends within its time-outs."""

    def get(self, resource: Resource, name: str, *, namespace: str = "") -> JsonObject: ...

    def list(
        self, resource: Resource, *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> Listing:
        """All pages. `labels` and `fields` are selectors; no namespace means all of them."""

    def create(self, resource: Resource, obj: JsonObject, *, dry_run: bool = False) -> JsonObject:
        """`KubeConflict` where the name is taken. With `dry_run`: what would be stored."""

    def replace(self, resource: Resource, obj: JsonObject) -> JsonObject:
        """The whole object. `KubeConflict` unless its resourceVersion is the stored one."""

    def patch(
        self, resource: Resource, name: str, patch: JsonObject, *, namespace: str = ""
    ) -> JsonObject:
        """JSON merge patch: None deletes a key, lists are replaced whole."""

    def apply(
        self, resource: Resource, obj: JsonObject, *, manager: str, force: bool = True
    ) -> JsonObject:
        """Server-side apply: `obj` is all that `manager` owns; what it leaves out, it gives up."""

    def patch_status(
        self, resource: Resource, name: str, patch: JsonObject, *, namespace: str = ""
    ) -> JsonObject: ...

    def apply_status(
        self, resource: Resource, obj: JsonObject, *, manager: str, force: bool = True
    ) -> JsonObject:
        """The right one for conditions and `status.devices`: others' list entries stay."""

    def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        version: str = "",
    ) -> None:
        """`KubeConflict` where the object is not the one of `uid` and `version` any more."""

    def watch(
        self,
        resource: Resource,
        *,
        since: str,
        lasting: float,
        silence: float,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
    ) -> WatchStream:
        """Seconds: the server ends the stream after `lasting`; none in `silence` is a failure."""

    def server_version(self) -> ServerVersion: ...

    def served_versions(self, group: str) -> tuple[str, ...]:
        """Empty where the server does not have the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """`old` is None for a new object, `new` is None for one that is gone."""

    key: Key
    old: JsonObject | None
    new: JsonObject | None


class Reflector(Protocol):
    """A local copy of the objects that match one selector, behind the server by one event."""

    def run(self, stop: Event) -> None:
        """Keep the copy current until `stop`; returns within a second of it while watching."""

    def has_synced(self) -> bool: ...

    def wait_synced(self, timeout: float) -> bool: ...

    def snapshot(self) -> tuple[JsonObject, ...]:
        """In order of (namespace, name). The objects are shared: never change them."""

    def get(self, name: str, *, namespace: str = "") -> JsonObject | None: ...

    def observe(self, obj: JsonObject) -> None:
        """Take in the server's answer to a write of ours, before the watch tells of it."""

    def subscribe(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Called for each change, in order, in the thread that made it; returns the undo.

        Must be quick (set an event, put on a queue); must not call back into the reflector's
        `observe`. What it raises ends `run`.
        """
