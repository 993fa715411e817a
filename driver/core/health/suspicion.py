"""When most GPUs of a node turn sick at once, and only we say so, the monitor is suspect.

Why it exists: a wrong library, a broken look or a bad threshold of ours makes every GPU sick in the
same minute; GPUs do not fail like that without a word in the kernel log or in their own advice.
Such faults count as "cannot tell": no claim gets the device, but nothing is called broken, nothing
that runs is ended, and the cause to look for is one.

Once suspected, a fault stays so until it ends or something else speaks against that GPU; else the
last of many that recover would be called sick because the others are well.

Must not know signals, or time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from driver.core.health.items import EVENTS, RECOVERY, Evidence, Identity, Item, Key
from driver.core.ids import GpuUuid

WINDOW: Final = 60.0
FEWEST_GPUS: Final = 3


def suspect(evidence: Evidence, new: Item, identity: Identity) -> Evidence:
    """Call after `new` was put in."""
    if not new.hard or new.scope.gpu is None:
        return evidence
    if _speaks(new):
        cleared = {
            key: replace(item, suspect=False)
            for key, item in evidence.items.items()
            if item.suspect and item.scope.gpu == new.scope.gpu
        }
        return _with(evidence, cleared)
    if new.scope.gi is not None:
        return evidence
    accused = {gpu for item in evidence.items.values() if _speaks(item) and (gpu := item.scope.gpu)}
    alike = [item for item in evidence.items.values() if _alike(item, new, accused)]
    gpus: set[GpuUuid | None] = {item.scope.gpu for item in alike}
    total = len(identity.serials.keys() | evidence.gpus.keys())
    if total < FEWEST_GPUS or 2 * len(gpus) <= total:
        return evidence
    return _with(evidence, {i.key: replace(i, suspect=True) for i in alike if not i.suspect})


def _speaks(item: Item) -> bool:
    return item.hard and (item.source in EVENTS or item.name == RECOVERY)


def _alike(item: Item, new: Item, accused: set[GpuUuid]) -> bool:
    return (
        item.hard
        and item.source is new.source
        and item.name == new.name
        and item.scope.gi is None
        and item.scope.gpu is not None
        and item.scope.gpu not in accused
        and abs(item.first - new.first) <= WINDOW
    )


def _with(evidence: Evidence, changed: dict[Key, Item]) -> Evidence:
    return replace(evidence, items={**evidence.items, **changed}) if changed else evidence
