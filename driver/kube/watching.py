"""List, then watch, for ever: three nested generators, each simple enough to be seen right.

    forever           begins again, with a new list, whenever the history is gone (410)
      from_list       lists, then opens connection after connection from the last version seen
        connection    one connection, until the server ends it

Why it exists: a watch that broke without an error is the worst failure of a driver, as the kubelet
deletes slices behind its back. So silence is a failure, every failure leads back to a list or to
the exact version where the stream broke, and no failure makes a hot loop.

Must not know: what becomes of the events (`reflector`).
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from driver.core.errors import KubeError, KubeGone
from driver.kube.backoff import Backoff
from driver.ports.kube import Bookmark, KubeApi, Listing, Resource, WatchEvent, WatchStream

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    resource: Resource
    namespace: str = ""
    labels: str = ""
    fields: str = ""

    def __str__(self) -> str:
        selectors = ", ".join(part for part in (self.labels, self.fields) if part)
        return f"{self.resource.plural} ({selectors})" if selectors else self.resource.plural


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Seconds. The server bookmarks every minute, so `silence` must be longer.

    `lasting` is drawn anew per connection: nodes that started together must not reconnect so.
    A connection that lived for `settled` proves that the server is well.
    """

    lasting: tuple[float, float] = (240.0, 480.0)
    silence: float = 100.0
    settled: float = 5.0


class Pace:
    """When to go on: the backoff of one watch, and the trouble that it is in."""

    def __init__(
        self,
        *,
        stopped: Callable[[float], bool],
        backoff: Backoff | None = None,
        patience: Patience | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stopped = stopped
        self.patience = patience or Patience()
        self.trouble = ""
        self._backoff = backoff or Backoff()
        self._clock = clock

    def now(self) -> float:
        return self._clock()

    def progress(self) -> None:
        """The server told us something: the next failure is the first one again."""
        self.trouble = ""
        self._backoff.reset()

    def pause(self, query: Query, error: KubeError) -> None:
        delay = self._backoff.next(at_least=error.retry_after)
        self.trouble = str(error)
        log.warning(
            "watch failed",
            extra={"query": str(query), "again_in_s": round(delay, 1), "error": str(error)},
        )
        self.stopped(delay)

    def pause_after_end(self, opened_at: float) -> None:
        """A server that ends connections as soon as they open must not be asked in a hot loop."""
        if self.now() - opened_at >= self.patience.settled:
            self.progress()
        else:
            self.stopped(self._backoff.next())


Guard = Callable[[WatchStream], AbstractContextManager[object]]
"""Makes the open stream known to whoever may have to close it."""


def forever(api: KubeApi, query: Query, pace: Pace, guard: Guard) -> Iterator[Listing | WatchEvent]:
    while not pace.stopped(0):
        try:
            yield from from_list(api, query, pace, guard)
        except KubeError as error:
            if not pace.stopped(0):
                pace.pause(query, error)


def from_list(
    api: KubeApi, query: Query, pace: Pace, guard: Guard
) -> Iterator[Listing | WatchEvent]:
    """Ends when `pace` says stop; raises `KubeGone`, and whatever the list raises."""
    listing = api.list(
        query.resource, namespace=query.namespace, labels=query.labels, fields=query.fields
    )
    yield listing
    version = listing.version
    while not pace.stopped(0):
        opened_at = pace.now()
        try:
            for event in connection(api, query, version, pace, guard):
                version = version_of(event)
                pace.progress()
                yield event
        except KubeGone:
            raise
        except KubeError as error:
            if not pace.stopped(0):
                pace.pause(query, error)
        else:
            if not pace.stopped(0):
                pace.pause_after_end(opened_at)


def connection(
    api: KubeApi, query: Query, since: str, pace: Pace, guard: Guard
) -> Iterator[WatchEvent]:
    patience = pace.patience
    stream = api.watch(
        query.resource,
        since=since,
        lasting=random.uniform(*patience.lasting),  # noqa: S311 - spreads load, keeps no secret
        silence=patience.silence,
        namespace=query.namespace,
        labels=query.labels,
        fields=query.fields,
    )
    with stream, guard(stream):
        yield from stream


def version_of(event: WatchEvent) -> str:
    if isinstance(event, Bookmark):
        return event.version
    version: str = event.obj["metadata"]["resourceVersion"]
    return version
