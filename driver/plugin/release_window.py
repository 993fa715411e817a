"""A while in which the plugin holds no GPU, so that others can reset or cut one.

Why it exists: a GPU is reset only when nobody has it open, and a plugin that watches GPUs always
has. Whoever asks says for how long: a window that is forgotten ends by itself, and the GPUs are
looked at again at once. Meanwhile nothing new is prepared, for it might be on the GPU that is being
reset; the kernel's log is still read.

Must not know who asks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from driver.observe.logs import Log
from driver.plugin.supervise import Wakeup

log = Log(__name__)


class Releasable(Protocol):
    """See `driver.nvml.library.NvmlLibrary`."""

    @property
    def held(self) -> bool: ...

    def release(self, seconds: float) -> None: ...

    def resume(self) -> None: ...


class ReleaseWindow:
    """`run` in a thread of its own, for the end of a window; everything else from any."""

    def __init__(
        self,
        library: Releasable,
        *,
        wakeup: Wakeup,
        closes: bool = False,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`closes`: NVML is closed between looks anyway."""
        self._library = library
        self._wakeup = wakeup
        self._closes = closes
        self._clock = clock
        self._wall = wall
        self._lock = threading.Lock()
        self._until: float | None = None
        self._held_since = clock()
        self._let_go: list[Callable[[], None]] = []
        self._ended: list[Callable[[], None]] = []

    def subscribe(
        self,
        *,
        let_go: Callable[[], None] = lambda: None,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """`let_go`: end at once what holds a GPU by other ways than NVML; `ended`: look again."""
        self._let_go.append(let_go)
        self._ended.append(ended)

    @property
    def left(self) -> float:
        """Seconds until the window ends; 0: there is none."""
        until = self._until
        return 0.0 if until is None else max(0.0, until - self._clock())

    @property
    def held(self) -> bool:
        """Whether NVML is open all the same: a call that hangs cannot be taken back."""
        return self._library.held

    @property
    def free_at(self) -> float:
        """When a GPU can last have been reset by others, as seconds since the epoch: now, when the
        last window ended, or when we came to hold NVML at all.
        """
        now = self._wall()
        if self._until is not None or self._closes:
            return now
        return now - (self._clock() - self._held_since)

    def is_open(self) -> bool:
        return self.left > 0

    def refusal(self) -> str:
        """Why nothing can be prepared now; empty: no window is open."""
        left = self.left
        if left <= 0:
            return ""
        until = datetime.fromtimestamp(self._wall() + left, UTC).strftime("%H:%M:%SZ")
        return (
            f"the GPUs of this node are let go of until {until}, so that one can be reset or cut by"
            " others; it is tried again"
        )

    def open(self, seconds: float) -> bool:
        """Let go of everything; from now, whatever was asked before. Whether all is let go of."""
        with self._lock:
            self._until = self._clock() + seconds
            self._wakeup.wake()
            log.warning("release window open: GPUs are not watched by NVML", seconds=seconds)
            self._tell(self._let_go)
            self._library.release(seconds)
            # Once more: what was just being started when the window opened.
            self._tell(self._let_go)
        return not self._library.held

    def end(self) -> bool:
        """Whether there was one to end."""
        with self._lock:
            if self._until is None:
                return False
            self._until = None
            self._held_since = self._clock()
            self._library.resume()
        log.info("release window ended, the GPUs are looked at again")
        self._tell(self._ended)
        return True

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            until = self._until
            self._wakeup.wait(None if until is None else self.left)
            # Only if nobody has asked for a longer one meanwhile.
            if until is not None and until == self._until and self.left <= 0:
                self.end()

    def _tell(self, told: list[Callable[[], None]]) -> None:
        for each in told:
            each()
