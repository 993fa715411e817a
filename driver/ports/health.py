"""Where signs of a GPU's health come from, and where they go.

A source looks by itself, in a thread of its own, and says what it sees in the words of
`driver.core.health.signals`; what that means is decided elsewhere. What only the Xid catalogue can
weigh is handed on as it came.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from driver.core.health.signals import Signal
from driver.core.ids import GpuUuid


class Sink(Protocol):
    """Called from the threads of all sources; returns soon and does not raise. What was seen in one
    look comes in one call: it is stored and weighed once.
    """

    def __call__(self, *signals: Signal) -> object: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRecord:
    """One record of the kernel's log, as it was read. `at`: when the kernel wrote it, in seconds
    since the epoch.
    """

    data: bytes
    at: float


RecordSink = Callable[[RawRecord], bool]
"""Whether the record mattered. It may be forgotten when this returns: what it says is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class XidSeen:
    """A critical Xid that NVML told; `gi` and `ci` where the driver attributes it."""

    gpu: GpuUuid
    code: int
    at: float
    gi: int | None = None
    ci: int | None = None


XidSink = Callable[[XidSeen], None]


class Alarm(Protocol):
    """What a source waits for between two looks; also set off when all is to end."""

    def wake(self) -> None: ...

    def wait(self, timeout: float | None) -> bool:
        """Whether somebody woke us, before `timeout` seconds were over."""
        ...


class HealthSource(Protocol):
    """One way to look at the GPUs of this node."""

    @property
    def name(self) -> str:
        """Of its thread, and in logs."""
        ...

    def run(self, stop: threading.Event) -> None:
        """Looks until `stop` is set, and returns soon after. That it cannot look is a signal, not
        an error.
        """
        ...
