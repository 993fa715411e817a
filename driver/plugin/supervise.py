"""Owner of every thread: joins them, and stops the process if one dies.

Why it exists: a thread that ended without a word is the failure that nobody sees; the process would
go on serving half of its duties. A restart by the kubelet is the honest answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from driver.observe.logs import Log

log = Log(__name__)


class Wakeup:
    """An event that a loop waits for; many calls of `wake` before the wait count as one."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def wake(self) -> None:
        self._event.set()

    def wait(self, timeout: float | None) -> bool:
        """Whether somebody woke us, before `timeout` seconds were over."""
        woken = self._event.wait(timeout)
        self._event.clear()
        return woken


class Supervisor:
    """`run` functions take the stop event and return soon after it is set."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._wakeups: list[Wakeup] = []
        self._failure: BaseException | None = None

    @property
    def failure(self) -> BaseException | None:
        """What ended the process, if it was not asked to end."""
        return self._failure

    def wakeup(self) -> Wakeup:
        """A wakeup that also goes off at the end, so that no loop sleeps through it."""
        made = Wakeup()
        self._wakeups.append(made)
        return made

    def start(self, name: str, run: Callable[[threading.Event], None]) -> None:
        thread = threading.Thread(target=self._guard, args=(name, run), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def fail(self, error: BaseException) -> None:
        """Ends the process: the first failure is the one that is told."""
        if self._failure is None:
            self._failure = error
        self.end()

    def end(self) -> None:
        self.stop.set()
        for each in self._wakeups:
            each.wake()

    def join(self, timeout: float) -> list[str]:
        """Wait for all threads, `timeout` seconds in all; the names of those still running."""
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return [t.name for t in self._threads if t.is_alive()]

    def _guard(self, name: str, run: Callable[[threading.Event], None]) -> None:
        try:
            run(self.stop)
        except BaseException as error:
            log.exception("thread died", loop=name)
            self.fail(error)
            return
        if not self.stop.is_set():
            self.fail(RuntimeError(f"thread {name} ended before it was asked to"))
