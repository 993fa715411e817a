"""What each kind of proof does to the open items: it ends some, and brings others a step nearer.

Why it exists: this is the only code that ends an item; `proof.py` says when that may be. A proof
counts for the items that are there when it arrives, and only where it is newer than their last
sign. Must not know faults, or time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from driver.core.health.acknowledge import acknowledgeable, is_gone, refusal
from driver.core.health.former_names import ONCE_UNREAD
from driver.core.health.gpus import forgotten
from driver.core.health.items import (
    EVENTS,
    MISSING,
    RECOVERY,
    RESET_MARKS,
    ROW_PENDING,
    Cleared,
    Evidence,
    Identity,
    Item,
    Kind,
    Sort,
)
from driver.core.health.proof import ends_when_well, ends_with_reset, probe_counts_after
from driver.core.health.room import DAY
from driver.core.health.signals import (
    Acknowledged,
    Need,
    Overruled,
    ProbePassed,
    ResetSeen,
    Scope,
    Source,
    Well,
)
from driver.core.ids import GpuUuid

MAX_CLEARED: Final = 128
TOLD_OF: Final = {ROW_PENDING: frozenset({"xid-63"})}
"""Events whose state a poll can see: a memory row waits for a reset to be replaced, or does not."""
SETTLES: Final = 3.0
"""Seconds after an error until the GPU's own advice is up to date: it is refreshed by a queue."""


def well(evidence: Evidence, proof: Well) -> Evidence:
    found = [i for i in evidence.items.values() if _looked_at(i, proof) and i.last < proof.at]
    # The marks behind these states live in the GPU, and go with a reset alone.
    resets = any(_goes_with_reset(i, proof) for i in found)
    evidence = _end(evidence, filter(ends_when_well, found), proof.at)
    evidence = _step(evidence, found, lambda i: _well_seen(i, proof.at))
    if proof.name == RECOVERY and proof.scope.gpu is not None:
        evidence = _overrule(evidence, proof.scope.gpu, proof.at)
    if resets and proof.scope.gpu is not None:
        return reset_seen(evidence, ResetSeen(gpu=proof.scope.gpu, at=proof.at))
    return evidence


def reset_seen(evidence: Evidence, proof: ResetSeen) -> Evidence:
    found = [i for i in evidence.items.values() if i.scope.gpu == proof.gpu and i.last < proof.at]
    evidence = _end(evidence, filter(ends_with_reset, found), proof.at)
    if proof.by:
        # Probes that failed before it say nothing of how soon the next one should come.
        tries = {k: t for k, t in evidence.tries.items() if k.gpu != proof.gpu}
        evidence = replace(evidence, tries=tries)
    return _step(evidence, found, lambda i: _reset_done(i, proof.at))


def passed(evidence: Evidence, proof: ProbePassed, identity: Identity) -> Evidence:
    found = [
        item
        for item in evidence.items.values()
        if (after := probe_counts_after(item, evidence.boot_id)) is not None
        and after < proof.at
        and _covers(proof.scope, item, identity)
    ]
    tries = {k: t for k, t in evidence.tries.items() if k != proof.scope}
    if len(tries) < len(evidence.tries):
        evidence = replace(evidence, tries=tries)
    ended: list[Item] = []
    for item in found:
        if item.scope.gpu is not None or proof.scope.gpu is None:
            ended.append(item)
            continue
        item_now = replace(item, proved=item.proved | {proof.scope.gpu})
        if identity.serials.keys() <= item_now.proved:
            ended.append(item_now)
        else:
            evidence = replace(evidence, items={**evidence.items, item.key: item_now})
    return _end(evidence, ended, proof.at)


def acknowledged(evidence: Evidence, proof: Acknowledged, identity: Identity) -> Evidence:
    if refusal(evidence, proof, identity) is not None:
        return evidence
    found = acknowledgeable(evidence, proof, identity)
    if is_gone(evidence, proof.gpu, identity):
        evidence = _end(evidence, found, proof.at)
        return forgotten(evidence, proof.gpu) if proof.name == MISSING else evidence
    return _step(evidence, found, lambda i: replace(i, acknowledged=proof))


def overruled(evidence: Evidence, proof: Overruled) -> Evidence:
    """By the same source as the fault. It ends nothing: a probe has to pass."""
    found = [
        i
        for i in evidence.items.values()
        if i.hard and i.last < proof.at
        if (i.source, i.scope, i.name) == (proof.source, proof.scope, proof.name)
    ]
    return _step(evidence, found, lambda i: replace(i, overruled=proof.at))


def rebooted(evidence: Evidence, boot_id: str, now: float) -> Evidence:
    """Another boot: what was only shown is of the past; every other item learns of it by its id."""
    old = [i for i in evidence.items.values() if i.boot_id not in {"", boot_id}]
    evidence = _end(evidence, filter(ends_with_reset, old), now)
    items = {k: i for k, i in evidence.items.items() if not (i.passing and i in old)}
    return replace(evidence, boot_id=boot_id, items=items, tries={})


def _looked_at(item: Item, proof: Well) -> bool:
    """By the source that reported it; the GPU's own advice is one fact, whoever reads it. What an
    event told of a state that can be looked at holds as long as the state does.
    """
    if item.kind is Kind.UNKNOWN and ONCE_UNREAD.get(item.name) == proof.name:
        return (item.source, item.scope) == (proof.source, proof.scope)
    if item.name in TOLD_OF.get(proof.name, ()):
        return (
            item.of_event and item.scope.gpu == proof.scope.gpu and item.last + SETTLES < proof.at
        )
    return (
        item.name == proof.name
        and (item.source is proof.source or proof.name == RECOVERY)
        and (item.scope == proof.scope or _holds(proof.scope, item.scope))
    )


def _goes_with_reset(item: Item, proof: Well) -> bool:
    """`item` was a mark of a GPU that waits for a reset, and now it is gone."""
    if item.kind is not Kind.FAULT or not _first_time(item, item.well):
        return False
    if proof.name == ROW_PENDING:
        return item.name == ROW_PENDING and item.source is Source.POLL
    return proof.name in RESET_MARKS and item.hard and item.need is Need.RESET


def _holds(outer: Scope, inner: Scope) -> bool:
    return outer.gi is None and outer.gpu is not None and outer.gpu == inner.gpu


def _covers(scope: Scope, item: Item, identity: Identity) -> bool:
    if scope.gpu is None:
        return False
    if item.scope.gpu is None:
        return scope.gi is None and scope.gpu in identity.serials
    if item.scope.gpu != scope.gpu:
        return False
    if scope.gi is None:
        return True
    slots = identity.places.get((scope.gpu, scope.gi))
    return slots is not None and item.slots & ~slots == 0


def _first_time(item: Item, at: float | None) -> bool:
    """The earliest proof is kept: one that moved on would outrun every probe after it."""
    return at is None or at <= item.last


def _well_seen(item: Item, at: float) -> Item:
    return replace(item, well=at) if item.hard and _first_time(item, item.well) else item


def _reset_done(item: Item, at: float) -> Item:
    return replace(item, reset=at) if item.hard and _first_time(item, item.reset) else item


def _overrule(evidence: Evidence, gpu: GpuUuid, at: float) -> Evidence:
    """DCGM and the kernel log disagree about one error: the GPU's own advice decides."""
    mine = [i for i in evidence.items.values() if i.scope.gpu == gpu and i.kind is Kind.FAULT]
    settled = [i for i in mine if i.last + SETTLES < at]
    light = {(i.name, i.scope) for i in settled if i.source in EVENTS and not i.hard}
    found = [
        i for i in settled if i.source is Source.DCGM and i.hard and (i.name, i.scope) in light
    ]
    return _step(evidence, found, lambda i: replace(i, overruled=at))


def _step(evidence: Evidence, found: Iterable[Item], change: Callable[[Item], Item]) -> Evidence:
    still = [i for i in found if i.key in evidence.items]
    changed = {i.key: new for i in still if (new := change(evidence.items[i.key])) != i}
    return replace(evidence, items={**evidence.items, **changed}) if changed else evidence


def _end(evidence: Evidence, ended: Iterable[Item], at: float) -> Evidence:
    gone = {item.key: item for item in ended}
    if not gone:
        return evidence
    cleared = {k: c for k, c in evidence.cleared.items() if at - c.at <= DAY}
    for item in gone.values():
        if item.hard and not item.suspect:
            sort = Sort(item.scope.gpu, item.name)
            before = cleared.get(sort)
            returns = max(item.returns, before.returns if before and before.at == at else 0)
            cleared[sort] = Cleared(at=at, returns=returns)
    while len(cleared) > MAX_CLEARED:
        del cleared[min(cleared, key=lambda sort: cleared[sort].at)]
    items = {k: i for k, i in evidence.items.items() if k not in gone}
    return replace(evidence, items=items, cleared=cleared)
