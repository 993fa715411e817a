"""When it is worth to let harmless records gather, instead of reading each as it comes.

Why it exists: a program that fails in a loop makes the driver write a thousand lines a second, and
to wake up for each costs more than to read it. Once many have come in close order, and none of them
mattered, the reader rests for a hundredth of a second before it looks again. A fault after a quiet
moment is never kept waiting, and in the middle of a storm for no longer than that; it ends the
resting.

Must not know records, or clocks.
"""

from __future__ import annotations

from typing import Final

REST: Final = 0.01
"""Seconds; of the half second that a fault may take to be published."""
_CLOSE: Final = 2 * REST
_MANY: Final = 16


class Storm:
    """For one thread."""

    def __init__(self) -> None:
        self._in_a_row = 0
        self._last = float("-inf")

    def rest(self, *, mattered: bool, now: float) -> float:
        """Seconds to rest, when all that was there has been read."""
        if mattered or now - self._last > _CLOSE:
            self._in_a_row = 0
        else:
            self._in_a_row += 1
        self._last = now
        return REST if self._in_a_row >= _MANY else 0.0
