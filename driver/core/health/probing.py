"""Which devices can be probed now, and which should be.

A probe computes on the device, so it is for devices that nobody holds:
- MIG off: the whole GPU, by its UUID.
- MIG on: each compute instance that no claim holds, by its MIG UUID; a GPU in this mode cannot be
  used as a whole.
- MIG on and nothing cut out: nothing can be probed. Nobody makes an instance for a probe's sake:
  the plugin switches the mode off on an idle GPU that is published whole, and what an administrator
  keeps in MIG mode is probed once there is an instance.
- All held: busy. It is asked again when a claim ends.

Probes run when evidence asks for one, after a reset or before trust is given back. `Policy.period`
adds probes of idle devices; it is off by default, because a probe keeps an idle GPU awake, and a
pod that starts meanwhile finds it in use.

Must not know CUDA, processes or clocks. Times are seconds of one clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from driver.core.health.probe import BUSY, Outcome, Passed, ProbeTarget
from driver.core.health.signals import ProbePassed, Scope
from driver.core.snapshot import GpuFacts

HELD: Final = BUSY
NO_INSTANCE: Final = "probe-no-instance"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotNow:
    """Why a GPU, or a part of it, cannot be probed. `name`: as in `CannotTell`."""

    scope: Scope
    name: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """`parallel`: probes at once on a node. `period`: seconds between probes of an idle device that
    nothing asked for; 0: none. `retry` to `retry_most`: between those that are asked for; doubled
    each time that one does not pass.
    """

    parallel: int = 2
    period: float = 0.0
    retry: float = 5.0
    retry_most: float = 300.0

    def __post_init__(self) -> None:
        if self.parallel < 1 or self.period < 0 or not 0 < self.retry <= self.retry_most:
            raise ValueError(f"need parallel >= 1, period >= 0, 0 < retry <= retry_most: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Last:
    """The last probe of one UUID: when it started, as it proves nothing of what came later, and how
    many in a row did not pass.
    """

    started: float
    misses: int


def after(before: Last | None, outcome: Outcome, *, started: float) -> Last:
    """What is remembered once a probe has ended."""
    misses = 0 if isinstance(outcome, Passed) else 1 + (before.misses if before else 0)
    return Last(started=started, misses=misses)


def targets(
    gpu: GpuFacts, *, held: Collection[str]
) -> tuple[tuple[ProbeTarget, ...], tuple[NotNow, ...]]:
    """What of a GPU can be probed, and what not. `held`: UUIDs of what claims have, GPUs or MIG."""
    whole = Scope(gpu=gpu.uuid)
    if gpu.uuid in held:
        return (), (NotNow(scope=whole, name=HELD, detail="a claim holds the GPU"),)
    if not gpu.mig.enabled:
        return (ProbeTarget(scope=whole, uuid=gpu.uuid),), ()
    parts = _parts(gpu)
    if not parts:
        detail = "MIG mode is on and the GPU has no compute instance"
        return (), (NotNow(scope=whole, name=NO_INSTANCE, detail=detail),)
    return (
        tuple(part for part in parts if part.uuid not in held),
        tuple(
            NotNow(scope=part.scope, name=HELD, detail="a claim holds the partition")
            for part in parts
            if part.uuid in held
        ),
    )


def proves_gpu(gpu: GpuFacts, passed: Collection[str], *, at: float) -> ProbePassed | None:
    """A GPU in MIG mode has proved itself when each of its compute instances has. `passed`: MIG
    UUIDs whose last probe passed, and is newer than whatever it shall prove; `at`: when the first
    of these probes started.
    """
    parts = _parts(gpu) if gpu.mig.enabled else ()
    if not parts or any(part.uuid not in passed for part in parts):
        return None
    return ProbePassed(scope=Scope(gpu=gpu.uuid), at=at)


def choose(
    possible: Iterable[ProbeTarget],
    *,
    wanted: Mapping[Scope, float],
    running: Collection[ProbeTarget],
    last: Mapping[str, Last],
    policy: Policy,
    now: float,
) -> tuple[ProbeTarget, ...]:
    """The probes to start now: one at a time on a GPU, those that evidence asks for first, and of
    these the one that waited longest.

    `wanted`: scopes, and since when; a GPU's means all that is on it. A probe that started later
    and passed fulfils the wish, however long it stays in the table.
    """
    room = policy.parallel - len(running)
    taken = {target.scope.gpu for target in running}
    chosen: list[ProbeTarget] = []
    due = [
        (_asked_at(target, wanted, last) is None, _started(target, last), target.uuid, target)
        for target in possible
        if _due_at(target, wanted, last, policy) <= now
    ]
    for _, _, _, target in sorted(due, key=lambda row: row[:3]):
        if len(chosen) < room and target.scope.gpu not in taken:
            taken.add(target.scope.gpu)
            chosen.append(target)
    return tuple(chosen)


def next_due(
    possible: Iterable[ProbeTarget],
    *,
    wanted: Mapping[Scope, float],
    last: Mapping[str, Last],
    policy: Policy,
) -> float | None:
    """When a probe is next due if nothing else happens; None: never."""
    times = [_due_at(target, wanted, last, policy) for target in possible]
    return min((time for time in times if time < _NEVER), default=None)


_NEVER: Final = float("inf")


def _due_at(
    target: ProbeTarget, wanted: Mapping[Scope, float], last: Mapping[str, Last], policy: Policy
) -> float:
    asked = _asked_at(target, wanted, last)
    started = _started(target, last)
    if asked is not None:
        return max(asked, started + _pause(last.get(target.uuid), asked, policy))
    if not policy.period:
        return _NEVER
    return started + policy.period


def _asked_at(
    target: ProbeTarget, wanted: Mapping[Scope, float], last: Mapping[str, Last]
) -> float | None:
    """Since when a newer proof is wanted; None: it is not, or no longer."""
    asked = max(
        (since for scope, since in wanted.items() if _covers(scope, target.scope)), default=None
    )
    known = last.get(target.uuid)
    if asked is None or (known and not known.misses and known.started >= asked):
        return None
    return asked


def _started(target: ProbeTarget, last: Mapping[str, Last]) -> float:
    known = last.get(target.uuid)
    return known.started if known else -_NEVER


def _pause(known: Last | None, asked: float, policy: Policy) -> float:
    """Failures from before the wish were about an older state: they do not slow it down. But signs
    that come in a storm ask again and again, so one pause is always kept.
    """
    if known is None or known.started < asked or not known.misses:
        return policy.retry
    return float(min(policy.retry * 2 ** min(known.misses - 1, 30), policy.retry_most))


def _covers(outer: Scope, inner: Scope) -> bool:
    """A compute instance is part of its GPU instance, and that of its GPU; NODE has them all."""
    return (
        outer.gpu in (None, inner.gpu)
        and outer.gi in (None, inner.gi)
        and outer.ci in (None, inner.ci)
    )


def _parts(gpu: GpuFacts) -> tuple[ProbeTarget, ...]:
    return tuple(
        ProbeTarget(scope=Scope(gpu=gpu.uuid, gi=instance.id, ci=compute.id), uuid=compute.uuid)
        for instance in gpu.mig.instances
        for compute in instance.compute
    )
