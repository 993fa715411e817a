"""Puts an item among the others: it joins the one with the same key, or finds room.

Why it exists: whatever arrives, the evidence stays small enough to be written on every change, and
nothing that withholds is lost for want of room: what does not fit is counted by one item that
stands for the whole GPU. Only what concerns no GPU of this node makes way.

Must not know signals.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from driver.core.devices import EVERY_SLOT
from driver.core.health.items import (
    TOO_MANY,
    Evidence,
    Identity,
    Item,
    Key,
    Kind,
    Sign,
    Sort,
    is_hard,
)
from driver.core.health.signals import Need, Scope, stronger
from driver.core.ids import GpuUuid

DAY: Final = 86400.0
MAX_GPUS: Final = 32
"""GPUs with items; more only where more are on the node."""
MAX_OPEN: Final = 32
"""Items of one GPU, or of the node, besides those that are only shown."""
MAX_SHOWN: Final = 8
SHOWN_SECONDS: Final = 600.0
"""So long an application's error is shown."""
MAX_COUNT: Final = 10**12
_AFTER_RETURNS: Final = {
    (Need.RESET, 2): Need.REBOOT,
    (Need.RESET, 3): Need.OPERATOR,
    (Need.REBOOT, 2): Need.OPERATOR,
    (Need.REBOOT, 3): Need.OPERATOR,
}
"""What did not help twice will not help a third time."""


def put(evidence: Evidence, new: Item, identity: Identity) -> tuple[Evidence, Item]:
    """With `new` in it, and the item that it has become part of."""
    old = evidence.items.get(new.key)
    if old is None and not new.passing:
        new = _fitted(evidence, new)
        old = evidence.items.get(new.key)
    if old is not None:
        return again(evidence, old.key, _sign(new))
    returns = _returns(evidence, new)
    item = replace(new, returns=returns, need=_escalated(new.need, returns))
    items = _shown(evidence.items, item) if item.passing else evidence.items
    items = _without_strangers(items, item, {*identity.serials, *evidence.gpus})
    return _with(evidence, {**items, item.key: item}, item), item


def again(evidence: Evidence, key: Key, sign: Sign) -> tuple[Evidence, Item]:
    """The item of `key` was seen once more. It may come ten thousand times in a few seconds."""
    old = evidence.items[key]
    newest = sign.last >= old.last
    item = replace(
        old,
        need=stronger(old.need, _escalated(sign.need, old.returns)),
        first=min(old.first, sign.first),
        last=max(old.last, sign.last),
        count=min(old.count + sign.times, MAX_COUNT),
        boot_id=sign.boot_id,
        detail=sign.detail if newest else old.detail,
        place=sign.place if newest else old.place,
        slots=old.slots | sign.slots,
        serial=sign.serial or old.serial,
        proved=frozenset() if sign.last > old.last else old.proved,
    )
    return _with(evidence, {**evidence.items, key: item}, item), item


def _sign(item: Item) -> Sign:
    return Sign(
        need=item.need,
        first=item.first,
        last=item.last,
        boot_id=item.boot_id,
        times=item.count,
        detail=item.detail,
        place=item.place,
        slots=item.slots,
        serial=item.serial,
    )


def _with(evidence: Evidence, items: Mapping[Key, Item], new: Item) -> Evidence:
    return replace(evidence, items=items, clock=max(evidence.clock, new.last))


def _escalated(need: Need, returns: int) -> Need:
    return _AFTER_RETURNS.get((need, min(returns, 3)), need)


def _returns(evidence: Evidence, new: Item) -> int:
    if new.kind is not Kind.FAULT or not is_hard(new.weight):
        return 0
    past = evidence.cleared.get(Sort(new.scope.gpu, new.name))
    if past is None or new.last > past.at + DAY:
        return 0
    return past.returns + (new.last > past.at)


def _fitted(evidence: Evidence, new: Item) -> Item:
    """`new`, or as part of what stands for all that no room was left for."""
    gpu = new.scope.gpu
    if sum(i.scope.gpu == gpu and not i.passing for i in evidence.items.values()) < MAX_OPEN:
        return new
    return replace(
        new,
        scope=Scope(gpu=gpu),
        name=TOO_MANY,
        need=Need.PROBE if new.kind is Kind.UNKNOWN else new.need,
        slots=EVERY_SLOT,
        detail=f"no room for more; the last was {new.name}",
    )


def _shown(items: Mapping[Key, Item], new: Item) -> Mapping[Key, Item]:
    """Without what was shown for long enough, and the oldest where there are too many."""
    shown = [i for i in items.values() if i.passing and i.scope.gpu == new.scope.gpu]
    shown.sort(key=lambda item: item.last)
    fresh = [i for i in shown if new.last - i.last <= SHOWN_SECONDS][-(MAX_SHOWN - 1) :]
    gone = {i.key for i in shown} - {i.key for i in fresh}
    return {k: i for k, i in items.items() if k not in gone} if gone else items


def _without_strangers(
    items: Mapping[Key, Item], new: Item, ours: Collection[GpuUuid]
) -> Mapping[Key, Item]:
    """A GPU that has gone for good leaves its items behind; the oldest such GPU makes way."""
    known = _gpus(items.values())
    if new.scope.gpu is None or new.scope.gpu in known or len(known) < MAX_GPUS:
        return items
    strangers = known.difference(ours)
    if not strangers:
        return items
    oldest = min(
        strangers, key=lambda gpu: (max(i.last for i in items.values() if i.scope.gpu == gpu), gpu)
    )
    return {k: i for k, i in items.items() if i.scope.gpu != oldest}


def _gpus(items: Iterable[Item]) -> set[GpuUuid]:
    return {i.scope.gpu for i in items if i.scope.gpu is not None}
