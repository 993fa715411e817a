"""Takes weight from a fault whose GPU, asked late enough, wants nothing done about it.

Why it exists: the catalogue counts at once, because the driver's own advice is late. When the
advice is in, and it is milder, the fault is only watched, and a probe that passes ends it; it is
never forgotten without one. A newer sign of the same fault makes it weigh again.

Must not know how advice is read; `verdict.py` decides for which codes it may weaken a fault.
"""

from __future__ import annotations

from dataclasses import replace

from driver.core.health.items import Evidence, Key, Kind
from driver.core.health.signals import Fault, Need


def settle(evidence: Evidence, fault: Fault, *, since: float) -> Evidence:
    """`fault`: as it is judged now; `since`: when its newest sign came, as far as is known."""
    key = Key(Kind.FAULT, fault.source, fault.scope, fault.name, fault.injected)
    item = evidence.items.get(key)
    if item is None or item.need is not Need.RESET or item.last > since:
        return evidence
    if fault.need not in {Need.PROBE, Need.WATCH, Need.NOTHING}:
        return evidence
    return replace(
        evidence, items={**evidence.items, key: replace(item, overruled=fault.at, wish=True)}
    )
