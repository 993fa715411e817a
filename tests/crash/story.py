"""What happened in a round, so that a finding explains itself: it may never be seen again.

Kept in memory that a killed child leaves behind, line by line: the last line of a child is the step
that it did not survive. Lines of all children and threads are told in the order of the clock.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from driver.core.ids import ClaimUID
from driver.core.ledger import Entry
from driver.core.snapshot import InstanceFacts
from driver.observe.logs import TextFormatter

if TYPE_CHECKING:
    from tests.crash.checks import Place

Note = Callable[[str], None]

_TIME_AND_LEVEL = 2
"""Words of a log line that say nothing here."""


class Story:
    """Of one round. To be closed, as its memory is outside of Python."""

    def __init__(self) -> None:
        self._file = os.memfd_create("story", os.MFD_CLOEXEC)

    def note(self, text: str, *, who: str = "node") -> None:
        """For every thread and child: they share the place where the next line goes."""
        thread = threading.current_thread()
        if thread is not threading.main_thread():
            who = f"{who}/{thread.name}"
        line = text.replace("\n", "\\n")
        os.write(self._file, f"{time.monotonic_ns()} {who}: {line}\n".encode())

    def told(self) -> str:
        """With seconds since the first line."""
        size = os.fstat(self._file).st_size
        lines = os.pread(self._file, size, 0).decode(errors="replace").splitlines()
        noted = sorted((int(t), text) for t, _, text in (line.partition(" ") for line in lines))
        return "\n".join(f"{(t - noted[0][0]) / 1e9:8.4f} {text}" for t, text in noted)

    def close(self) -> None:
        os.close(self._file)


class StoryLog(logging.Handler):
    """The plugin's own words, in the story of the child that it runs in."""

    def __init__(self, note: Note) -> None:
        super().__init__(logging.INFO)
        self.setFormatter(TextFormatter())
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        words = self.format(record).split(" ", _TIME_AND_LEVEL)[-1]
        self._note(f"says {words}")

    def install(self) -> None:
        logging.disable(logging.NOTSET)
        root = logging.getLogger()
        root.addHandler(self)
        root.setLevel(logging.INFO)


def shown(
    entries: Mapping[ClaimUID, Entry],
    there: Mapping[Place, InstanceFacts],
    foreign: Iterable[Place],
) -> list[str]:
    """Ledger and hardware, a line for each entry and each instance."""
    lines = []
    for uid, entry in sorted(entries.items()):
        held = ", ".join(
            f"{h.gpu[:8]}" + (f" {h.slot.start}+{h.slot.size} {h.slot.made}" if h.slot else "")
            for h in entry.holdings
        )
        lines.append(f"ledger: {uid} {entry.phase} in boot {entry.boot_id[:8]}: {held}")
    others = set(foreign)
    for place, instance in sorted(there.items()):
        whose = " (foreign)" if place in others else ""
        computes = ", ".join(f"{c.id} {c.uuid}" for c in instance.compute) or "none"
        lines.append(
            f"hardware: {place[0][:8]} {place[1]}+{place[2]} instance {instance.id},"
            f" compute {computes}{whose}"
        )
    return lines
