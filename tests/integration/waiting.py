"""Waiting for what gives no sign to those outside of a plugin's process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

_PATIENCE: Final = 60.0
_TICK: Final = 0.01


def until(true: Callable[[], object], what: str) -> None:
    """Asked again and again, as there is no event; `what` is said when it does not come."""
    tick = threading.Event()
    deadline = time.monotonic() + _PATIENCE
    while not true():
        assert time.monotonic() < deadline, what
        tick.wait(_TICK)
