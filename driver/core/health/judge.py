"""From evidence to a judgement of every device: the worst of what concerns it.

A partition's fault concerns every device that would use its memory slots, and no other; a GPU's all
devices of the GPU; the node's all devices, but for what is only watched: that a GPU is missing, or
that a line names none of ours, says nothing of the others. Time only ever makes a judgement worse:
what cannot be told is waited for a while, then it withholds. `Judgements.due` says when that is.
Must not know what a signal is, or what is done with a judgement.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from driver.core.devices import EVERY_SLOT, Allocatable
from driver.core.health.items import RELEASED, Evidence, Item, Kind
from driver.core.health.judgement import READY, Judgement, Judgements, Reason, State
from driver.core.health.probe import BUSY
from driver.core.health.proof import next_step
from driver.core.health.room import SHOWN_SECONDS
from driver.core.health.signals import Need, Source
from driver.core.ids import DeviceName, GpuUuid

__all__ = [
    "READY",
    "JudgeSettings",
    "Judgement",
    "Judgements",
    "Reason",
    "State",
    "Subject",
    "judge",
    "subjects",
]

_BY_NEED: Final = {
    Need.NOTHING: State.READY,
    Need.PROBE: State.DEGRADED,
    Need.WATCH: State.DEGRADED,
    Need.RESET: State.RESET,
    Need.REBOOT: State.REBOOT,
    Need.OPERATOR: State.OPERATOR,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """`debounce`: seconds for which "cannot tell" is only shown. `advisory`: sources whose silence
    says nothing about a GPU, because they repeat what others see.
    """

    debounce: float = 60.0
    advisory: frozenset[Source] = frozenset({Source.DCGM})

    def withholds_at(self, item: Item) -> float:
        """When "cannot tell" begins to withhold. That a probe has to wait says nothing, nor that we
        let go of NVML ourselves: nothing is prepared meanwhile, and then it is looked again.
        """
        if item.need is Need.PROBE:
            return item.first
        if item.source in self.advisory or item.name in {BUSY, RELEASED}:
            return inf
        return item.first + self.debounce


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A device, as far as health goes: which slots of which GPU it uses, or may come to use."""

    device: DeviceName
    gpu: GpuUuid
    slots: int = EVERY_SLOT


def subjects(devices: Mapping[DeviceName, Allocatable]) -> tuple[Subject, ...]:
    """Of a late partition the slots are not known before preparation: it may get a sick one."""
    return tuple(
        Subject(device=name, gpu=device.gpu.uuid, slots=device.slots)
        for name, device in devices.items()
    )


def judge(
    evidence: Evidence, devices: Iterable[Subject], now: float, settings: JudgeSettings
) -> Judgements:
    """A pure function of what is known, so the same after a restart."""
    now = max(now, evidence.clock)  # a clock set back makes nothing younger
    reasons = [_reason(i, evidence, now, settings) for i in evidence.items.values()]
    reasons = sorted((r for r in reasons if _shown(r.item, now)), key=_order)
    devices = tuple(devices)
    named = {r.item.scope.gpu for r in reasons if r.item.scope.gpu is not None}
    by_gpu = {
        gpu: tuple(r for r in reasons if _concerns(r.item, gpu))
        for gpu in sorted(named | {each.gpu for each in devices})
    }
    return Judgements(
        devices={each.device: _of_device(each, by_gpu[each.gpu]) for each in devices},
        gpus={gpu: _judged(mine) for gpu, mine in by_gpu.items()},
        node=_judged(tuple(r for r in reasons if r.item.scope.gpu is None)),
        due=_due(reasons, now, settings),
    )


def _concerns(item: Item, gpu: GpuUuid) -> bool:
    if item.scope.gpu is not None:
        return item.scope.gpu == gpu
    return item.weight is not Need.WATCH and gpu not in item.proved


def _of_device(each: Subject, reasons: tuple[Reason, ...]) -> Judgement:
    return _judged(tuple(r for r in reasons if r.item.slots & each.slots))


def _reason(item: Item, evidence: Evidence, now: float, settings: JudgeSettings) -> Reason:
    return Reason(
        item=item,
        state=_state(item, now, settings),
        step=next_step(item, evidence.boot_id),
    )


def _state(item: Item, now: float, settings: JudgeSettings) -> State:
    if item.kind is Kind.UNKNOWN:
        return State.READY if now < settings.withholds_at(item) else State.UNKNOWN
    if item.suspect and item.hard:
        # At once: a suspicion of the monitor must not put a device back on offer.
        return State.UNKNOWN
    return _BY_NEED[item.weight]


def _shown(item: Item, now: float) -> bool:
    return not item.passing or now < item.last + SHOWN_SECONDS


def _due(reasons: Iterable[Reason], now: float, settings: JudgeSettings) -> float | None:
    times = []
    for reason in reasons:
        item = reason.item
        if item.passing:
            times.append(item.last + SHOWN_SECONDS)
        elif item.kind is Kind.UNKNOWN:
            times.append(settings.withholds_at(item))
    return min((at for at in times if now < at < inf), default=None)


def _order(reason: Reason) -> tuple[int, float, str, str, str]:
    """The worst first, then the oldest: a later fault of the same kind does not change a taint."""
    item = reason.item
    return -reason.state.rank, item.first, item.name, item.source, repr(item.key)


def _judged(reasons: tuple[Reason, ...]) -> Judgement:
    """`reasons` in order."""
    if not reasons:
        return READY
    worst = reasons[0]
    since = worst.item.first if worst.state is not State.READY else None
    return Judgement(state=worst.state, reasons=reasons, since=since)
