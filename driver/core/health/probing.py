"""Which devices can be probed now, and whose turn it is.

A probe computes on the device, so it is for devices that nobody holds:
- MIG off: the whole GPU, by its UUID.
- MIG on: each compute instance that no claim holds, by its MIG UUID, one after the other; CUDA does
  not use a GPU in this mode as a whole. A wish about the GPU is fulfilled when all of them pass.
- MIG on and nothing cut out: nothing can be probed. No instance is made for a probe's sake: the
  plugin switches the mode off on an idle GPU that is published whole, and what an administrator
  keeps in MIG mode is probed once there is an instance.
- All held: busy. It stays wanted, and its turn comes when a claim ends.

Probes run when evidence asks for one (`wishes.py`), so the times here are mostly its own.
`Policy.period` adds probes of idle devices; it is off by default, because a probe keeps an idle GPU
awake, and a pod that starts meanwhile finds it in use.

Must not know CUDA, processes or clocks. Times are seconds of one clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from driver.core.health.probe import BUSY, Outcome, Passed, ProbeTarget
from driver.core.health.signals import ProbePassed, Scope
from driver.core.ids import GpuUuid
from driver.core.snapshot import GpuFacts

NO_INSTANCE: Final = "probe-no-instance"
GONE: Final = "probe-no-device"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotNow:
    """Why a wish must wait. `name`: a short token; `detail`: for people."""

    scope: Scope
    name: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """`parallel`: GPUs that are probed at once on a node. `period`: seconds between probes of an
    idle device that nothing asked for; 0: none.
    """

    parallel: int = 2
    period: float = 0.0

    def __post_init__(self) -> None:
        if self.parallel < 1 or self.period < 0:
            raise ValueError(f"need parallel >= 1 and period >= 0: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """All that must pass for `scope` to have proved itself, to be probed one after the other.

    What happens on the device after `started` is newer than the proof.
    """

    scope: Scope
    started: float
    targets: tuple[ProbeTarget, ...]


def choose(
    due: Mapping[Scope, float],
    gpus: Mapping[GpuUuid, GpuFacts],
    *,
    held: Collection[str],
    running: Collection[GpuUuid],
    policy: Policy,
    now: float,
) -> tuple[tuple[Round, ...], tuple[NotNow, ...]]:
    """The rounds to start now, the longest due first and one at a time on a GPU; and those that are
    due and cannot be.

    `due`: from when on a scope should be probed. `held`: UUIDs of the GPUs and MIG devices of
    claims. `running`: GPUs with a round under way.
    """
    taken = set(running)
    room = policy.parallel - len(taken)
    rounds: list[Round] = []
    waiting: list[NotNow] = []
    for scope in sorted(due, key=lambda each: (due[each], repr(each))):
        if due[scope] > now or scope.gpu is None or scope.gpu in taken:
            continue
        match round_of(scope, gpus.get(scope.gpu), held=held, now=now):
            case NotNow() as why:
                waiting.append(why)
            case Round() as ready if len(rounds) < room:
                taken.add(scope.gpu)
                rounds.append(ready)
    return tuple(rounds), tuple(waiting)


def round_of(
    scope: Scope, gpu: GpuFacts | None, *, held: Collection[str], now: float
) -> Round | NotNow:
    """What to probe for a wish. `gpu`: as it is now; None: it is not there."""
    here = _targets(scope, gpu) if gpu is not None else ()
    free = tuple(each for each in here if not {each.uuid, scope.gpu} & set(held))
    if free:
        return Round(scope=scope, started=now, targets=free)
    if here:
        return NotNow(scope=scope, name=BUSY, detail="claims hold all that could be probed")
    if gpu is None or scope.gi is not None:
        what = "GPU" if scope.gi is None else "partition"
        return NotNow(scope=scope, name=GONE, detail=f"the {what} is not there")
    detail = "MIG mode is on and the GPU has no compute instance"
    return NotNow(scope=scope, name=NO_INSTANCE, detail=detail)


def proof(done: Round, outcomes: Sequence[Outcome]) -> ProbePassed | None:
    """Of the round's scope, once each of its targets has passed; else it has proved nothing. A
    partition that passed for itself has proved itself whatever the others do: see `signals`.
    """
    passed = [outcome for outcome in outcomes if isinstance(outcome, Passed)]
    if len(passed) < len(done.targets):
        return None
    return ProbePassed(scope=done.scope, at=done.started)


def routine(
    gpus: Iterable[GpuUuid], *, last: Mapping[GpuUuid, float], policy: Policy, since: float
) -> dict[Scope, float]:
    """When each GPU is due although nothing asks for it. `last`: when its last round started, of
    whatever kind; `since`: our own start, from which the first period counts.
    """
    if not policy.period:
        return {}
    return {Scope(gpu=gpu): last.get(gpu, since) + policy.period for gpu in gpus}


def next_due(due: Mapping[Scope, float], *, now: float) -> float | None:
    """When to look again if nothing else happens. What is due and waits needs an event: a claim or
    a round that ends.
    """
    return min((at for at in due.values() if at > now), default=None)


def _targets(scope: Scope, gpu: GpuFacts) -> tuple[ProbeTarget, ...]:
    """All that the scope has, held or not."""
    if not gpu.mig.enabled:
        whole = ProbeTarget(scope=Scope(gpu=gpu.uuid), uuid=gpu.uuid)
        return (whole,) if scope.gi is None else ()
    parts = (
        ProbeTarget(scope=Scope(gpu=gpu.uuid, gi=instance.id, ci=compute.id), uuid=compute.uuid)
        for instance in gpu.mig.instances
        for compute in instance.compute
    )
    return tuple(part for part in parts if _covers(scope, part.scope))


def _covers(outer: Scope, inner: Scope) -> bool:
    """A compute instance is part of its GPU instance, and that of its GPU."""
    return outer.gpu == inner.gpu and outer.gi in {None, inner.gi} and outer.ci in {None, inner.ci}
