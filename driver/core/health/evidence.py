"""Takes what the sources say into the evidence: the state machine's one transition.

Why it exists: sources speak in any order, repeat themselves and contradict each other. What comes
out must not depend on the order of things that have nothing to do with each other, must never
forget a fault without newer proof, and must stay small. Must not know files, threads, or any
source.

A fault of a GPU instance is bound to the memory slots where it lay when the fault was seen. When
the instance is destroyed the fault stays with these slots, and concerns every device that would use
them: destroying an instance resets nothing. It ends when what it needs was done and a probe passes
on the GPU, or on a later instance that covers the slots. An instance that nobody knows stands for
its whole GPU.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from dataclasses import replace
from math import isfinite
from typing import Final

from driver.core.health.clock import in_step
from driver.core.health.items import DAMAGED, Evidence, Identity, Item, Kind, Sighting, Try
from driver.core.health.proofs import acknowledged, passed, rebooted, reset_seen, well
from driver.core.health.repeats import sighted
from driver.core.health.room import put
from driver.core.health.signals import (
    NODE,
    Acknowledged,
    CannotTell,
    Fault,
    Need,
    ProbePassed,
    ResetSeen,
    Scope,
    Signal,
    Source,
    Well,
)
from driver.core.health.suspicion import suspect

MAX_NAME: Final = 63
MAX_DETAIL: Final = 240
MAX_PLACE: Final = 64
MAX_TRIES: Final = 64
SKEW: Final = 1.0
"""Seconds that a source's clock reading may be ahead of ours."""
_HASH: Final = 8
_UNSAFE: Final = re.compile(r"[^a-z0-9.-]+")


def take(
    evidence: Evidence, signal: Signal, *, boot_id: str, now: float, identity: Identity
) -> Evidence:
    """The evidence with `signal` in it; the same value where it says nothing new."""
    evidence = begun(evidence, boot_id=boot_id, now=now)
    if not isinstance(signal, Fault | CannotTell) and not signal.at <= now + SKEW:
        return evidence  # made before the clock was set back: it may be older than it seems
    signal = replace(signal, at=min(signal.at, now) if isfinite(signal.at) else now)
    after = _taken(evidence, signal, identity)
    return after if after is evidence else replace(after, clock=max(now, evidence.clock))


def begun(evidence: Evidence, *, boot_id: str, now: float) -> Evidence:
    """As it stands in this boot, by this clock. Call it with what was restored."""
    evidence = in_step(evidence, now)
    if not boot_id or boot_id == evidence.boot_id:
        return evidence
    return rebooted(evidence, boot_id, now)


def damaged(detail: str, *, boot_id: str, now: float) -> Evidence:
    """In the place of evidence that is lost: of no GPU is anything known until a probe passes."""
    item = Item(
        kind=Kind.UNKNOWN,
        source=Source.PROBE,
        scope=NODE,
        name=DAMAGED,
        need=Need.PROBE,
        first=now,
        last=now,
        boot_id=boot_id,
        detail=_text(detail, MAX_DETAIL),
    )
    return Evidence(boot_id=boot_id, clock=now, items={item.key: item})


def unasked(evidence: Evidence, sources: Collection[Source]) -> Evidence:
    """Without what these sources could not tell: an administrator has switched them off, so they
    will never tell it. Faults that they told stay.
    """
    items = {
        key: item
        for key, item in evidence.items.items()
        if item.kind is Kind.FAULT or item.need is Need.PROBE or item.source not in sources
    }
    return replace(evidence, items=items) if len(items) < len(evidence.items) else evidence


def probe_started(evidence: Evidence, scope: Scope, now: float) -> Evidence:
    """So that the next one, should this one not pass, comes later."""
    tries = dict(evidence.tries)
    before = tries.get(scope)
    tries[scope] = Try(count=before.count + 1 if before else 1, at=now)
    if len(tries) > MAX_TRIES:
        del tries[min(tries, key=lambda each: tries[each].at)]
    return replace(evidence, tries=tries)


def token(name: str) -> str:
    """A name as a taint's value: any two names that differ stay different."""
    safe = _UNSAFE.sub("-", name.lower()).strip("-.")
    if safe == name and 0 < len(safe) <= MAX_NAME:
        return name
    mark = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:_HASH]
    return f"{safe[: MAX_NAME - _HASH - 1].rstrip('-.') or 'unnamed'}-{mark}"


def _text(text: str, most: int) -> str:
    """Cut, and without what cannot be written as UTF-8: it may come from a kernel line."""
    return text[:most].encode(errors="replace").decode()


def _taken(evidence: Evidence, signal: Signal, identity: Identity) -> Evidence:
    match signal:
        case Fault():
            return _fault(evidence, replace(signal, name=token(signal.name)), identity)
        case CannotTell():
            item = _unknown(signal, evidence.boot_id, identity)
            return put(evidence, item, identity)[0]
        case Well():
            return well(evidence, replace(signal, name=token(signal.name)))
        case ResetSeen():
            return reset_seen(evidence, signal)
        case ProbePassed():
            return passed(evidence, signal, identity)
        case Acknowledged():
            by = _text(signal.by, MAX_PLACE)
            return acknowledged(evidence, replace(signal, by=by), identity)


def _fault(evidence: Evidence, fault: Fault, identity: Identity) -> Evidence:
    evidence = _answered(evidence, fault)
    item = _item(fault, evidence.boot_id, identity)
    evidence, became = put(evidence, item, identity)
    evidence = suspect(evidence, became, identity)
    gpu = fault.scope.gpu
    if gpu is None or not became.passing or fault.injected:
        return evidence
    sighting = Sighting(gpu, fault.name, item.place)
    sightings, repeat = sighted(evidence.sightings, sighting, fault.at)
    evidence = replace(evidence, sightings=sightings)
    if not repeat:
        return evidence
    again = replace(item, name=f"{item.name}-repeated", need=Need.WATCH, wish=True)
    return put(evidence, again, identity)[0]


def _answered(evidence: Evidence, fault: Fault) -> Evidence:
    """Somebody looked after all: what could not be told is told by the fault itself."""
    for item in evidence.items.values():
        if (
            item.kind is Kind.UNKNOWN
            and (item.source, item.scope, item.name) == (fault.source, fault.scope, fault.name)
            and item.last < fault.at
            and not fault.injected
        ):
            items = {k: i for k, i in evidence.items.items() if k != item.key}
            return replace(evidence, items=items)
    return evidence


def _item(fault: Fault, boot_id: str, identity: Identity) -> Item:
    return Item(
        source=fault.source,
        scope=fault.scope,
        name=fault.name,
        need=fault.need,
        first=fault.at,
        last=fault.at,
        count=max(1, fault.count),
        boot_id=boot_id,
        detail=_text(fault.detail, MAX_DETAIL),
        place=_text(fault.place, MAX_PLACE),
        injected=fault.injected,
        slots=identity.slots(fault.scope),
        serial=identity.serials.get(fault.scope.gpu, "") if fault.scope.gpu else "",
    )


def _unknown(signal: CannotTell, boot_id: str, identity: Identity) -> Item:
    return Item(
        kind=Kind.UNKNOWN,
        source=signal.source,
        scope=signal.scope,
        name=token(signal.name),
        need=Need.NOTHING,
        first=signal.at,
        last=signal.at,
        boot_id=boot_id,
        detail=_text(signal.detail, MAX_DETAIL),
        slots=identity.slots(signal.scope),
        serial=identity.serials.get(signal.scope.gpu, "") if signal.scope.gpu else "",
    )
