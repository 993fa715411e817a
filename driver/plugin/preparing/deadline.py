"""How long one call may wait, all in all: every wait in it takes from the same account.

Why it exists: the kubelet gives up on a call after 45 seconds, whatever the number of its claims;
bounds for each wait alone would add up to more. Must not know what is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    begun: float
    seconds: float
    clock: Callable[[], float] = time.monotonic

    @classmethod
    def after(cls, seconds: float, clock: Callable[[], float] = time.monotonic) -> Self:
        return cls(begun=clock(), seconds=seconds, clock=clock)

    def left(self, *, of: float = float("inf")) -> float:
        """Seconds; with `of`, how much is left of the first so many seconds."""
        return max(0.0, self.begun + min(of, self.seconds) - self.clock())


NEVER = Deadline(begun=0.0, seconds=float("inf"))
