"""Judges the devices anew whenever evidence, hardware or time asks for it.

Why it exists: a fault must reach the API server within half a second, so what weighs is judged in
the thread that brought it; what is only shown waits, so that ten thousand application errors cost
next to nothing. Time alone makes a judgement worse when nobody can tell for too long.

Must not know sources, or what follows from a judgement.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from driver.core.health.judge import JudgeSettings, judge, subjects
from driver.observe.logs import Log
from driver.plugin.health.custody import Custody
from driver.plugin.health.judged import Judged
from driver.plugin.node import Hardware
from driver.plugin.supervise import Wakeup

log = Log(__name__)

_LAZY: Final = 1.0
"""Seconds for which what is only shown may wait."""
_LEAST: Final = 0.01
"""Seconds; the two clocks do not tick alike, and a wait that ends just too early is no loop."""


class Monitor:
    """`run` in a thread of its own; everything else from any. `clock`: the time of day, of which
    evidence speaks; `uptime`: what pauses are measured by, as the time of day may be set.
    """

    def __init__(
        self,
        custody: Custody,
        hardware: Hardware,
        judged: Judged,
        *,
        settings: JudgeSettings,
        wakeup: Wakeup,
        clock: Callable[[], float] = time.time,
        uptime: Callable[[], float] = time.monotonic,
    ) -> None:
        self._custody = custody
        self._hardware = hardware
        self._judged = judged
        self._settings = settings
        self._wakeup = wakeup
        self._clock = clock
        self._uptime = uptime
        self._lock = threading.Lock()
        self._due: float | None = None
        custody.subscribe(self._evidence_changed)
        hardware.subscribe(self.judge)

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self._wakeup.wait(self.step())

    def step(self) -> float | None:
        """Do what is due; seconds until the next thing is, None: when something happens."""
        if (rest := self._rest()) is not None and rest <= 0:
            self._custody.keep()
            self._judge()
        return self._rest()

    def judge(self) -> None:
        """Now, with what is known now."""
        self._judge()
        self._wakeup.wake()  # it may have to be done again sooner than it was

    def _judge(self) -> None:
        with self._lock:
            inventory, now = self._hardware.inventory, self._clock()
            found = judge(
                self._custody.evidence,
                subjects(inventory.devices) if inventory else (),
                now,
                self._settings,
            )
            store_at = self._custody.due()
            pauses = [
                None if found.due is None else found.due - now,
                self._judged.set(found),
                None if store_at is None else store_at - self._uptime(),
            ]
            pause = min((each for each in pauses if each is not None), default=None)
            self._due = None if pause is None else self._uptime() + max(_LEAST, pause)

    def _evidence_changed(self, weighty: bool) -> None:
        if weighty:
            self.judge()
            return
        with self._lock:
            lazily = self._uptime() + _LAZY
            if self._due is not None and self._due <= lazily:
                return
            self._due = lazily
        self._wakeup.wake()

    def _rest(self) -> float | None:
        with self._lock:
            return None if self._due is None else max(0.0, self._due - self._uptime())
