"""Remembers and sums up lines of the kernel's log that say nothing about a device.

Why it exists: a program that fails in a loop writes the same line thousands of times; to read each
anew and to take each into evidence would cost a core. A text is remembered together with what was
known when it was judged; when other GPUs are known, it is read anew. What is alike is one signal a
second, with its number. Bounded, whatever is written.

Must not know evidence, nor how a line is judged.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Final

from driver.core.health.kernel.log import Event
from driver.core.health.kernel.verdict_known import Judgement, Known
from driver.core.health.signals import Fault, Need
from driver.core.ids import GpuUuid

SUMMED: Final = 1.0
"""Seconds for which what is only shown is summed up."""
_MOST: Final = 512
_LONGEST: Final = 512
"""Bytes of a text that is remembered; the driver's are shorter, and so a full memory is small."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Harmless:
    """`fault`: without a time. `alike`: what its faults have in common, cheap to look up.
    `ask_again`: whose recovery action is wanted all the same.
    """

    fault: Fault
    alike: tuple[object, ...]
    event: Event
    ask_again: GpuUuid | None


def harmless(said: Judgement, event: Event) -> Harmless | None:
    """What an application's error amounts to; None for what weighs."""
    if len(said.signals) != 1:
        return None
    (fault,) = said.signals
    if not isinstance(fault, Fault) or fault.need is not Need.NOTHING:
        return None
    scope = fault.scope
    return Harmless(
        fault=replace(fault, at=0.0),
        alike=(scope.gpu, scope.gi, scope.ci, fault.name, fault.place, fault.injected),
        event=event,
        ask_again=said.ask_again,
    )


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
        if len(text) <= _LONGEST:
            self._texts[text] = seen


@dataclass(slots=True)
class Sum:
    """`seen`: the newest of those alike, at `at`."""

    seen: Harmless
    at: float
    count: int = 1

    def signals(self) -> list[Fault]:
        """The first alone, so that a second one counts as a repeat."""
        first = replace(self.seen.fault, at=self.at)
        return [first] if self.count == 1 else [first, replace(first, count=self.count - 1)]


class HarmlessSums:
    """Safe for several threads. Times are seconds of one clock, which nobody sets."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums: dict[tuple[object, ...], Sum] = {}
        self._due = 0.0

    def add(self, seen: Harmless, at: float, *, now: float) -> tuple[bool, bool]:
        """Whether it is the first of its kind, and whether it is the first of all."""
        with self._lock:
            known = self._sums.get(seen.alike)
            if known is not None:
                known.seen, known.at, known.count = seen, at, known.count + 1
                return False, False
            if not self._sums:
                self._due = now + SUMMED
            self._sums[seen.alike] = Sum(seen, at)
            return True, len(self._sums) == 1

    def rest(self, now: float) -> float | None:
        """Seconds until the sums are complete; None: there are none. They are, too, when they are
        many: no storm of lines that differ may fill the memory.
        """
        with self._lock:
            if len(self._sums) >= _MOST:
                return 0.0
            return max(0.0, self._due - now) if self._sums else None

    @property
    def full(self) -> bool:
        """Whether the next that is unlike all others must wait until they are passed on."""
        return len(self._sums) >= _MOST

    def take(self) -> list[Sum]:
        with self._lock:
            sums, self._sums = self._sums, {}
        return [*sums.values()]
