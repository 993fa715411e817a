"""One watch connection as an iterator of events, which any thread can end.

Why `close` is more than closing: a thread that is blocked in `recv` does not notice that another
one closed the file. Only shutting the socket down wakes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from threading import Lock
from types import TracebackType
from typing import Final, Self

from urllib3.exceptions import HTTPError
from urllib3.response import BaseHTTPResponse

from driver.kube import failures
from driver.ports.kube import Added, Bookmark, Deleted, Modified, WatchEvent

CHUNK: Final = 1 << 16
_KINDS: Final[dict[str, type[Added | Modified | Deleted]]] = {
    "ADDED": Added,
    "MODIFIED": Modified,
    "DELETED": Deleted,
}


class HttpWatchStream:
    """Iterate in one thread; `close` from any."""

    def __init__(self, response: BaseHTTPResponse, *, what: str) -> None:
        self._response = response
        self._what = what
        self._lock = Lock()
        self._closed = False
        self._released = False

    def __iter__(self) -> Iterator[WatchEvent]:
        try:
            for line in _lines(self._response):
                yield self._event(line)
        except (HTTPError, OSError, ValueError) as error:
            # The socket going away under the reader shows in many ways, all of them wanted here.
            if not self._closed:
                raise failures.unreachable(self._what, error) from error

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if not self._released:
                _wake_reader(self._response)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._released = True
            self._response.close()

    def _event(self, line: bytes) -> WatchEvent:
        event = json.loads(line)
        kind, obj = event.get("type"), event.get("object", {})
        if kind == "ERROR":
            raise failures.streamed(self._what, obj)
        if kind == "BOOKMARK":
            return Bookmark(obj["metadata"]["resourceVersion"])
        if kind not in _KINDS:
            raise failures.unreadable(self._what, ValueError(f"unknown event type {kind!r}"))
        return _KINDS[kind](obj)


def _lines(response: BaseHTTPResponse) -> Iterator[bytes]:
    """Events end with a newline; a piece of the stream may hold several, or part of one.

    A part that is left when the stream ends is dropped: it will be sent again.
    """
    rest: list[bytes] = []
    for piece in response.stream(CHUNK):
        *ended, begun = piece.split(b"\n")
        for line in ended:
            whole = b"".join([*rest, line])
            rest.clear()
            if whole.strip():
                yield whole
        rest.append(begun)


def _wake_reader(response: BaseHTTPResponse) -> None:
    """The errors say that nobody can be blocked: the answer was read to its end, or was cut."""
    with suppress(RuntimeError, ValueError, OSError):
        response.shutdown()
