"""Whether the plugin does its work: named conditions, each well or with a reason.

Why it exists: readiness is set from several threads, and "not ready" without a reason helps nobody.

Must not know what a condition means or how it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from driver.observe.logs import Log

log = Log(__name__)

Check = Callable[[], str]
"""What is wrong, as a sentence; empty while all is well."""


class Readiness:
    """Ready when every condition is well. Safe for several threads; one log line per change."""

    def __init__(self, *conditions: str, on_change: Callable[[bool], None] | None = None) -> None:
        """`on_change` is called, in order, whenever the whole becomes ready or ceases to be."""
        self._lock = Lock()
        self._reasons = dict.fromkeys(conditions, "not reached yet")
        self._on_change = on_change

    def well(self, condition: str) -> None:
        self._set(condition, "")

    def failing(self, condition: str, reason: str) -> None:
        if not reason:
            raise ValueError(f"condition {condition} fails without a reason")
        self._set(condition, reason)

    def trouble(self) -> str:
        """A `Check`: every condition that fails, and why."""
        with self._lock:
            return _told(self._reasons)

    def _set(self, condition: str, reason: str) -> None:
        with self._lock:
            if condition not in self._reasons:
                known = ", ".join(self._reasons)
                raise ValueError(f"no condition {condition!r}; known: {known}")
            if self._reasons[condition] == reason:
                return
            was = not _told(self._reasons)
            self._reasons[condition] = reason
            now = not _told(self._reasons)
            # Under the lock, or two changes could be told in the wrong order.
            if reason:
                log.warning("condition failing", condition=condition, reason=reason)
            else:
                log.info("condition well", condition=condition)
            if was != now and self._on_change:
                self._on_change(now)


def _told(reasons: dict[str, str]) -> str:
    return "; ".join(f"{name}: {reason}" for name, reason in reasons.items() if reason)
