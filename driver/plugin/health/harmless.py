"""Remembers texts of the kernel's log that say nothing about a device.

Why it exists: a program that fails in a loop writes the same line thousands of times, and to read
each anew would cost a core. A text is remembered together with what was known when it was judged;
when other GPUs are known, it is read anew. Bounded, whatever is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from driver.core.health.kernel.log import Event
from driver.core.health.kernel.verdict_known import Known
from driver.core.health.signals import Fault
from driver.core.ids import GpuUuid

_MOST: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Harmless:
    """`fault`: without a time. `ask_again`: whose recovery action is wanted all the same."""

    fault: Fault
    event: Event
    ask_again: GpuUuid | None


class HarmlessTexts:
    """For one thread."""

    def __init__(self) -> None:
        self._known: Known | None = None
        self._texts: dict[bytes, Harmless] = {}

    def get(self, text: bytes, known: Known) -> Harmless | None:
        return self._texts.get(text) if known is self._known else None

    def put(self, text: bytes, known: Known, seen: Harmless) -> None:
        if known is not self._known or len(self._texts) >= _MOST:
            self._known, self._texts = known, {}
        self._texts[text] = seen
