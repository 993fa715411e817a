"""One plugin of a node speaks for it: slices, status and repairs come from who holds the lead.

Why it exists: during a rolling update two plugins serve the kubelet, which is safe for claims, but
two publishers would each take the other's writes for a change. The kernel gives the lead on when
its holder dies. At the end it is let go of before calls drain, so that a fault is published while
the old pod still finishes its last preparation.

Must not know what is done with the lead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from driver.core.errors import StateError
from driver.observe.logs import Log
from driver.ports.state import Locks

log = Log(__name__)

_NAME: Final = "publisher"
_ASK: Final = 0.1
"""Seconds between two tries while another plugin leads; the kernel wakes nobody at its end."""
_LET_GO: Final = 2.0
"""Seconds for what runs under the lead to end; a request that hangs longer must not keep it."""

Run = Callable[[threading.Event], None]


class Leadership:
    """`leads` is called when we lead, before anything runs under the lead; `ends` before another
    plugin may, whatever still runs; `follows` when another plugin of this node turns out to lead;
    `failed` with why nobody can know.
    """

    def __init__(
        self,
        locks: Locks,
        *,
        follows: Callable[[], None],
        failed: Callable[[str], None],
        leads: Callable[[], None] = lambda: None,
        ends: Callable[[], None] = lambda: None,
    ) -> None:
        self._locks = locks
        self._leads = leads
        self._ends = ends
        self._follows = follows
        self._failed = failed
        self._decided = threading.Event()
        self._leading = False
        self._running = 0
        self._ended = threading.Condition()

    @property
    def leading(self) -> bool:
        """Whether this plugin speaks for the node."""
        return self._leading

    def run(self, stop: threading.Event) -> None:
        """Takes the lead as soon as it is free, lets go of it after `stop`."""
        leading = self._take(stop)
        if leading:
            self._leads()
        self._leading = leading
        self._decided.set()
        if not self._leading:
            return
        log.info("this plugin leads: it publishes the node's devices")
        stop.wait()
        with self._ended:
            ended = self._ended.wait_for(lambda: self._running == 0, _LET_GO)
        self._leading = False
        self._ends()
        self._locks.give(_NAME)
        log.info("lead let go of", in_order=ended)

    def led(self, run: Run) -> Run:
        """`run`, but only while we lead. To be asked for before our own `run` is started."""
        self._running += 1

        def when_leading(stop: threading.Event) -> None:
            try:
                self._decided.wait()
                if self._leading:
                    run(stop)
            finally:
                with self._ended:
                    self._running -= 1
                    self._ended.notify_all()

        return when_leading

    def _take(self, stop: threading.Event) -> bool:
        told = ""
        while not stop.is_set():
            try:
                holder = self._locks.take(_NAME, by="this plugin", patience=0)
            except StateError as error:
                if told != str(error):
                    log.error("nobody can know who leads", reason=str(error))
                told = str(error)
                self._failed(told)
            else:
                if not holder:
                    return True
                if told != holder:
                    log.info("another plugin leads; the kubelet is served meanwhile", holder=holder)
                told = holder
                self._follows()
            stop.wait(_ASK)
        return False
