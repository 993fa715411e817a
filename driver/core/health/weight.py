"""What of the evidence weighs: all that a restart must not take back.

Why it exists: a GPU in trouble may say the same ten thousand times. That it has said so once more
is shown, and stored, a little later; what changes what is held against a device, or what is proved,
is stored and judged at once. Both are asked here, so that they cannot differ.

Must not know files, or what follows from a judgement.
"""

from __future__ import annotations

from collections.abc import Hashable

from driver.core.health.items import Evidence, Item
from driver.core.health.proof import next_step, probe_counts_after


def weighs_alike(one: Evidence, other: Evidence) -> bool:
    """Whether they differ in nothing but how often and when something was seen."""
    if one.boot_id != other.boot_id or one.gpus != other.gpus:
        return False
    if one.items is other.items:
        return True
    return all(
        before is after or _weight(before, one.boot_id) == _weight(after, one.boot_id)
        for key in {*one.items, *other.items}
        for before, after in ((one.items.get(key), other.items.get(key)),)
    )


def _weight(item: Item | None, boot_id: str) -> Hashable:
    """None for what is only shown, as for what is not there."""
    if item is None or item.passing:
        return None
    return (
        item.need,
        item.weight,
        item.boot_id,
        item.slots,
        item.returns,
        item.wish,
        item.suspect,
        item.proved,
        item.well is not None and item.well > item.last,
        item.reset is not None and item.reset > item.last,
        item.acknowledged,
        next_step(item, boot_id),
        probe_counts_after(item, boot_id) is None,
    )
