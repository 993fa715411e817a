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
from driver.core.health.gpus import renumbered
from driver.core.health.items import (
    DAMAGED,
    Evidence,
    Identity,
    Item,
    Key,
    Kind,
    Sighting,
    Sign,
    Try,
)
from driver.core.health.proofs import acknowledged, overruled, passed, rebooted, reset_seen, well
from driver.core.health.repeats import sighted
from driver.core.health.room import again, put
from driver.core.health.signals import (
    NODE,
    Acknowledged,
    CannotTell,
    Fault,
    Need,
    Overruled,
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
    at = min(signal.at, now) if isfinite(signal.at) else now
    if at != signal.at:
        signal = replace(signal, at=at)
    after = _taken(evidence, signal, identity)
    if after is evidence or after.clock >= signal.at:
        return after
    return replace(after, clock=signal.at)


def begun(evidence: Evidence, *, boot_id: str, now: float) -> Evidence:
    """As it stands in this boot, by this clock. Call it with what was restored."""
    evidence = in_step(evidence, now)
    if not boot_id or boot_id == evidence.boot_id:
        return evidence
    return renumbered(rebooted(evidence, boot_id, now))


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
    will never tell it. Faults that they told stay, and end like those that an event told.
    """
    theirs = {k: i for k, i in evidence.items.items() if i.source in sources}
    if not theirs:
        return evidence
    kept = {
        key: replace(item, unasked=True)
        for key, item in theirs.items()
        if item.kind is Kind.FAULT or item.need is Need.PROBE
    }
    others = {k: i for k, i in evidence.items.items() if k not in theirs}
    evidence = replace(evidence, items={**others, **kept})
    # The boot that ends them may be the one that has just begun.
    return rebooted(evidence, evidence.boot_id, evidence.clock) if evidence.boot_id else evidence


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
            return _fault(evidence, signal, identity)
        case CannotTell():
            key = Key(Kind.UNKNOWN, signal.source, signal.scope, token(signal.name))
            item = _item(key, _sign(signal, evidence, identity))
            return put(evidence, item, identity)[0]
        case Well():
            return well(evidence, replace(signal, name=token(signal.name)))
        case Overruled():
            return overruled(evidence, replace(signal, name=token(signal.name)))
        case _:
            return _proved(evidence, signal, identity)


def _proved(
    evidence: Evidence, proof: ResetSeen | ProbePassed | Acknowledged, identity: Identity
) -> Evidence:
    match proof:
        case ResetSeen():
            return reset_seen(evidence, proof)
        case ProbePassed():
            return passed(evidence, proof, identity)
        case Acknowledged():
            by = _text(proof.by, MAX_PLACE)
            return acknowledged(evidence, replace(proof, by=by), identity)


def _fault(evidence: Evidence, fault: Fault, identity: Identity) -> Evidence:
    name, gpu = token(fault.name), fault.scope.gpu
    passing = fault.injected or fault.need is Need.NOTHING
    key = Key(Kind.FAULT, fault.source, fault.scope, name, fault.injected, passing)
    sign = _sign(fault, evidence, identity)
    evidence = _answered(evidence, key, fault.at)
    if key in evidence.items:
        evidence, item = again(evidence, key, sign)
    else:
        new = _item(key, sign)
        evidence, item = put(evidence, new, identity)
    evidence = suspect(evidence, item, identity)
    if gpu is None or not passing or fault.injected:
        return evidence
    sighting = Sighting(gpu, name, sign.place)
    sightings, repeat = sighted(evidence.sightings, sighting, fault.at)
    if sightings is not evidence.sightings:
        evidence = replace(evidence, sightings=sightings)
    if not repeat:
        return evidence
    watched = _item(key, sign._replace(need=Need.WATCH))
    return put(evidence, replace(watched, name=f"{name}-repeated", wish=True), identity)[0]


def _answered(evidence: Evidence, key: Key, at: float) -> Evidence:
    """Somebody looked after all: what could not be told is told by the fault itself."""
    asked = Key(Kind.UNKNOWN, key.source, key.scope, key.name)
    unknown = evidence.items.get(asked)
    if unknown is None or key.injected or unknown.last >= at:
        return evidence
    return replace(evidence, items={k: i for k, i in evidence.items.items() if k != asked})


def _sign(signal: Fault | CannotTell, evidence: Evidence, identity: Identity) -> Sign:
    told = signal if isinstance(signal, Fault) else None
    gpu = signal.scope.gpu
    known = evidence.gpus.get(gpu) if gpu is not None else None
    read = identity.serials.get(gpu, "") if gpu is not None else ""
    return Sign(
        need=told.need if told else Need.NOTHING,
        first=signal.at,
        last=signal.at,
        boot_id=evidence.boot_id,
        times=max(1, told.count) if told else 1,
        detail=_text(signal.detail, MAX_DETAIL),
        place=_text(told.place, MAX_PLACE) if told else "",
        slots=identity.slots(signal.scope),
        serial=read or (known.serial if known else ""),
    )


def _item(key: Key, sign: Sign) -> Item:
    return Item(
        kind=key.kind,
        source=key.source,
        scope=key.scope,
        name=key.name,
        injected=key.injected,
        need=sign.need,
        first=sign.first,
        last=sign.last,
        boot_id=sign.boot_id,
        count=sign.times,
        detail=sign.detail,
        place=sign.place,
        slots=sign.slots,
        serial=sign.serial,
    )
