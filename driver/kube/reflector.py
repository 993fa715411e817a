"""A store that follows the server: `watching` feeds `store`, in the thread that calls `run`.

Why `run` starts a second thread: it may be blocked in a read when `stop` is set, and only another
thread can wake it. That one sleeps on `stop` and does nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from driver.kube.backoff import Backoff
from driver.kube.store import Store
from driver.kube.watching import Pace, Patience, Query, forever
from driver.ports.kube import (
    Added,
    Change,
    Deleted,
    JsonObject,
    KubeApi,
    Listing,
    Modified,
    WatchEvent,
    WatchStream,
)


class Reflector:
    """Implements `driver.ports.kube.Reflector`."""

    def __init__(
        self,
        api: KubeApi,
        query: Query,
        *,
        backoff: Backoff | None = None,
        patience: Patience | None = None,
        listed: Callable[[], None] = lambda: None,
        keep: Callable[[JsonObject], JsonObject | None] = lambda obj: obj,
    ) -> None:
        """`listed` is called after each full list but the first. `keep`: what of an object is
        stored, with at least its name, namespace and version; None leaves it out.
        """
        self._api = api
        self._query = query
        self._backoff = backoff or Backoff()
        self._patience = patience or Patience()
        self._listed = listed
        self._keep = keep
        self._store = Store()
        self._pace: Pace | None = None

    @property
    def trouble(self) -> str:
        """Why the copy may be late: the last error, empty while all is well."""
        return self._pace.trouble if self._pace else ""

    def run(self, stop: threading.Event) -> None:
        """Blocks until `stop`. A list under way ends by its own time-outs; a watch ends at once."""
        self._pace = Pace(stopped=stop.wait, backoff=self._backoff, patience=self._patience)
        opened = _OpenStream()
        closer = threading.Thread(
            target=opened.close_when, args=(stop,), name=f"close {self._query}", daemon=True
        )
        closer.start()
        for event in forever(self._api, self._query, self._pace, opened.guard):
            if isinstance(event, Listing):
                again = self._store.has_synced()
                items = tuple(kept for obj in event.items if (kept := self._keep(obj)) is not None)
                self._store.replace(replace(event, items=items))
                if again:
                    self._listed()
            else:
                self._store.feed(self._trimmed(event))
        closer.join()

    def _trimmed(self, event: WatchEvent) -> WatchEvent:
        """What is left out from now on is gone, as far as the copy is concerned."""
        if not isinstance(event, Added | Modified):
            return event
        kept = self._keep(event.obj)
        return Deleted(event.obj) if kept is None else Modified(kept)

    def has_synced(self) -> bool:
        return self._store.has_synced()

    def wait_synced(self, timeout: float) -> bool:
        return self._store.wait_synced(timeout)

    def snapshot(self) -> tuple[JsonObject, ...]:
        return self._store.snapshot()

    def get(self, name: str, *, namespace: str = "") -> JsonObject | None:
        return self._store.get(name, namespace=namespace)

    def observe(self, obj: JsonObject) -> None:
        self._store.observe(obj)

    def subscribe(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        return self._store.subscribe(callback)


class _OpenStream:
    """The stream that is being read now, if any; once closed, later ones are closed as they open.

    Without the last part, a stop between "is it time to stop?" and "the stream is open" is lost.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stream: WatchStream | None = None
        self._closed = False

    @contextmanager
    def guard(self, stream: WatchStream) -> Iterator[None]:
        with self._lock:
            self._stream = stream
            if self._closed:
                stream.close()
        try:
            yield
        finally:
            with self._lock:
                self._stream = None

    def close_when(self, stop: threading.Event) -> None:
        stop.wait()
        with self._lock:
            self._closed = True
            if self._stream is not None:
                self._stream.close()
