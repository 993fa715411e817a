"""A token bucket for writes: the Python client has no limit of its own, unlike client-go.

Why it exists: a reconciler with a defect must not become an attack on the API server.

Must not know: how its caller waits. The clock is passed in.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock


class TokenBucket:
    """`rate` per second on average, `burst` at once. Callers queue in the order they came."""

    def __init__(
        self, *, rate: float = 10.0, burst: int = 50, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if rate <= 0 or burst < 1:
            raise ValueError(f"need rate > 0 and burst >= 1, got {rate} and {burst}")
        self._rate = rate
        self._burst = float(burst)
        self._clock = clock
        self._lock = Lock()
        self._tokens = self._burst
        self._at = clock()

    def reserve(self) -> float:
        """Take a token, on credit if need be; the seconds to wait before using it."""
        with self._lock:
            self._refill()
            self._tokens -= 1
            return max(0.0, -self._tokens / self._rate)

    def try_take(self) -> bool:
        """Take a token only where no wait is needed."""
        with self._lock:
            self._refill()
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True

    def _refill(self) -> None:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
