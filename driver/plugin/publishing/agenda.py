"""When the publisher looks next: at once, together with the rest of a burst, later, or never.

Why it exists: a look for nothing costs as much as a useful one. Our own writes come back through
the watch, perhaps before their answer; they are told apart by their versions.

Must not know what a look does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from driver.kube.throttle import TokenBucket
from driver.plugin.supervise import Wakeup

BURST: Final = 0.1
"""Seconds between two orders that follow allocations of a burst."""
_AT_ONCE: Final = 4
"""So many in a row are followed at once, and so many a second for ever. One at a time is the common
case, and in it waiting costs more fidelity than it saves writes (docs/benchmarks.md)."""


class Agenda:
    """Causes come from any thread; `wait`, `wrote` and `looked` belong to the one that looks."""

    def __init__(self, wakeup: Wakeup, clock: Callable[[], float]) -> None:
        self._wakeup = wakeup
        self._clock = clock
        self._lock = threading.Lock()
        self._at: float | None = clock()
        self._settles_at: float | None = None
        self._followed_at = self._at
        self._at_once = TokenBucket(rate=_AT_ONCE, burst=_AT_ONCE, clock=clock)
        self._stored: set[str] = set()
        self._own: set[str] = set()

    def changed(self) -> None:
        """Something else than an order is not as it was: look at once."""
        self._soon(self._clock())

    def stored(self, version: str) -> None:
        """A slice is stored in this version; no version: it is gone. Look, unless we wrote it."""
        with self._lock:
            self._stored.add(version)
        self._wakeup.wake()

    def allocated(self) -> None:
        """Claims take or give back devices: look at once, but not again and again in a burst."""
        with self._lock:
            if self._settles_at is None:
                now = self._at_once.try_take()
                self._settles_at = self._clock() if now else self._followed_at + BURST
        self._wakeup.wake()

    def wrote(self, version: str) -> None:
        with self._lock:
            self._own.add(version)

    def wait(self, stop: threading.Event) -> bool:
        """Until a look is due; False where the end came first."""
        while not stop.is_set():
            rest = self._rest()
            if rest is None or rest > 0:
                self._wakeup.wait(rest)
                continue
            self._begin()
            return True
        return False

    def looked(self, pause: float | None) -> None:
        """The look is over, and without a cause the next one is due in `pause` seconds."""
        if pause is not None:
            self._soon(self._clock() + pause)

    def _soon(self, at: float) -> None:
        with self._lock:
            self._at = at if self._at is None else min(at, self._at)
        self._wakeup.wake()

    def _rest(self) -> float | None:
        with self._lock:
            if self._stored - self._own:
                return 0
            due = [at for at in (self._at, self._settles_at) if at is not None]
        return min(due) - self._clock() if due else None

    def _begin(self) -> None:
        """Whatever is known by now, this look takes in."""
        with self._lock:
            self._stored.clear()
            self._own.clear()
            self._at = None
            if self._settles_at is not None:
                self._settles_at, self._followed_at = None, self._clock()
