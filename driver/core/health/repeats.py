"""Application errors that come back in a way that points to the GPU.

Why it exists: an out-of-bounds access (Xid 13) or a page fault (Xid 31) is a program's fault, and
withholds nothing. The same engine of one GPU failing again, or page faults of different programs on
one GPU, is what NVIDIA's debug guide wants a diagnostic for. So the GPU is watched, and a probe is
wished for.

A program that crashes writes many lines; lines less than a minute apart are one crash.

Must not know what a place means: for Xid 13 it is where on the chip, for Xid 31 the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from driver.core.health.items import Sighting
from driver.core.health.room import DAY

ONE_CRASH: Final = 60.0
MAX_SIGHTINGS: Final = 128
SAME_PLACE: Final = "xid-13"
OTHER_PLACE: Final = "xid-31"

Sightings = Mapping[Sighting, float]


def sighted(known: Sightings, new: Sighting, at: float) -> tuple[Sightings, bool]:
    """With the new one, and whether it is a repeat that points to the GPU."""
    if new.name not in {SAME_PLACE, OTHER_PLACE} or not new.place:
        return known, False
    repeat = any(
        ONE_CRASH <= at - before <= DAY and _points(old, new) for old, before in known.items()
    )
    kept = {**known, new: max(at, known.get(new, at))}
    if len(kept) > MAX_SIGHTINGS:
        del kept[min(kept, key=lambda each: (kept[each], each))]
    return kept, repeat


def _points(old: Sighting, new: Sighting) -> bool:
    alike = old.place == new.place
    wanted = alike if new.name == SAME_PLACE else not alike
    return (old.gpu, old.name) == (new.gpu, new.name) and wanted
