"""How long to wait before the next attempt: exponential, capped, with full jitter.

Why full jitter: after an outage of the API server every node asks again at once; spreading over
the whole interval, and not around its end, empties that queue fastest.

Must not know: time, threads. Randomness is passed in.
"""

from __future__ import annotations

import random
from collections.abc import Callable


class Backoff:
    """Seconds. `uniform(a, b)` as in `random.uniform`."""

    def __init__(
        self,
        *,
        base: float = 0.2,
        cap: float = 30.0,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        if not 0 < base <= cap:
            raise ValueError(f"need 0 < base <= cap, got base {base} and cap {cap}")
        self._base = base
        self._cap = cap
        self._uniform = uniform
        self._ceiling = base

    def next(self, *, at_least: float | None = None) -> float:
        """`at_least`: what the server asked for. It is never undercut, and not capped."""
        delay = self._uniform(0.0, self._ceiling)
        self._ceiling = min(self._cap, self._ceiling * 2)
        return delay if at_least is None else max(delay, at_least)

    def reset(self) -> None:
        self._ceiling = self._base
