"""Which probes the evidence asks for, and when.

Why it exists: a probe uses the GPU and may hang, so it is asked for only where a pass would bring
something to its end, and less and less often where it does not pass. Must not know how a GPU is
probed, or whether it is in use: whoever probes may have to wait.

A probe of a whole GPU stands for all that can be probed on it: in MIG mode, every instance that no
claim holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from driver.core.health.items import Evidence, Identity, Item, Try
from driver.core.health.proof import probe_counts_after
from driver.core.health.signals import Scope
from driver.core.ids import GpuUuid

FIRST_PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 300.0
_DOUBLINGS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Probe `scope` at `due` or later; `names`: what a pass would end, or bring nearer to it."""

    scope: Scope
    due: float
    names: tuple[str, ...]


def wanted_probes(evidence: Evidence, now: float, identity: Identity) -> tuple[Wish, ...]:
    """At most one for each scope, the most urgent first. Tell `probe_started` when one starts.

    None where the same slots still wait for a reset, a reboot or an operator: a pass would prove
    nothing, and a sick GPU may keep the probe for ever.
    """
    names: dict[Scope, set[str]] = {}
    for gpu in identity.serials:
        for item in evidence.items.values():
            if _concerns(item, gpu) and probe_counts_after(item, evidence.boot_id) is not None:
                names.setdefault(_target(item, gpu, identity), set()).add(item.name)
    wishes = [
        Wish(
            scope=scope,
            due=max(now, _due(evidence.tries.get(scope))),
            names=tuple(sorted(names[scope])),
        )
        for scope in names
        if not _waits(evidence, scope, identity)
    ]
    return tuple(sorted(wishes, key=lambda wish: (wish.due, repr(wish.scope))))


def _target(item: Item, gpu: GpuUuid, identity: Identity) -> Scope:
    """The instance itself while it lies where it lay; else the GPU, which covers its slots."""
    gi = item.scope.gi
    there = gi is not None and identity.places.get((gpu, gi)) == item.slots
    return item.scope if there else Scope(gpu=gpu)


def _waits(evidence: Evidence, scope: Scope, identity: Identity) -> bool:
    slots = identity.slots(scope)
    return any(
        item.hard
        and (item.scope.gpu is None or (item.scope.gpu == scope.gpu and item.slots & slots))
        and probe_counts_after(item, evidence.boot_id) is None
        for item in evidence.items.values()
    )


def next_due(wishes: Iterable[Wish]) -> float | None:
    return min((wish.due for wish in wishes), default=None)


def _concerns(item: Item, gpu: GpuUuid) -> bool:
    if item.scope.gpu is None:
        return gpu not in item.proved
    return item.scope.gpu == gpu


def _due(tried: Try | None) -> float:
    if tried is None:
        return float("-inf")
    pause = FIRST_PAUSE * 2.0 ** min(tried.count - 1, _DOUBLINGS)
    return tried.at + min(pause, LONGEST_PAUSE)
