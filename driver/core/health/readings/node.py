"""One look at the whole node, weighed: who answers, who is missing, and each GPU's readings.

Why it exists: the same error means one GPU where one gives it, and the driver where all give it;
and a GPU that is not there any more has no readings to weigh, it must be missed by somebody who
remembers it.

Must not know NVML, the clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from driver.core.health.items import MISSING
from driver.core.health.kernel.verdict_recovery import NEEDS, RecoveryAction, recovery_action
from driver.core.health.readings.over_time import History, Limits, weigh_times
from driver.core.health.readings.state import weigh_states
from driver.core.health.readings.unread import weigh_unread
from driver.core.health.readings.values import Failed, GpuReadings, NodeReadings, Trouble
from driver.core.health.signals import (
    NODE,
    CannotTell,
    Fault,
    Need,
    ResetSeen,
    Scope,
    Signal,
    Source,
    Well,
)
from driver.core.ids import GpuUuid

NVML: Final = "nvml"
"""The state of the library as a whole, of the node; and of one GPU, that it answers."""

_TROUBLES: Final = {
    Trouble.LOST: ("gpu-lost", Need.RESET),
    Trouble.RESET_REQUIRED: ("reset-required", Need.RESET),
    Trouble.MISSING: (MISSING, Need.RESET),
    Trouble.POWER: ("power-cable", Need.OPERATOR),
    Trouble.INTERRUPTS: ("gpu-interrupts", Need.PROBE),
}
_ENDED_BY_RESET: Final = {Trouble.LOST, Trouble.RESET_REQUIRED, Trouble.MISSING}
_RESETS: Final = {Need.RESET, Need.REBOOT}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMemory:
    """What the last look left behind of one GPU."""

    trouble: Trouble | None = None
    action: int = 0
    history: History = field(default_factory=History)


Memories = Mapping[GpuUuid, GpuMemory]


def weigh_failure(failed: Failed, at: float) -> list[Signal]:
    """NVML as a whole did not answer: of no GPU can anything be said."""
    return [CannotTell(source=Source.POLL, scope=NODE, name=NVML, at=at, detail=failed.text)]


def weigh_node(
    look: NodeReadings, memories: Memories, limits: Limits
) -> tuple[list[Signal], Memories]:
    """Every signal of this look, and what the next one is to know."""
    failures = {gpu: got for gpu, got in look.gpus.items() if isinstance(got, Failed)}
    if len(failures) == len(look.gpus) > 1 and not _TROUBLES.keys() & _kinds(failures):
        first = next(iter(failures.values()))
        text = f"none of {len(failures)} GPUs answers; {first.text}"
        return weigh_failure(replace(first, text=text), look.at), memories
    if look.uncounted and not look.places:
        text = f"NVML has no GPU; on the PCI bus: {_where(look)}; see dmesg"
        return weigh_failure(Failed(trouble=Trouble.MISSING, text=text), look.at), memories
    signals: list[Signal] = [Well(source=Source.POLL, scope=NODE, name=NVML, at=look.at)]
    signals.append(_uncounted(look))
    after = dict(memories)
    for gpu, got in look.gpus.items():
        memory = memories.get(gpu, GpuMemory())
        if isinstance(got, Failed):
            signals.append(_trouble(gpu, got, look))
            after[gpu] = replace(memory, trouble=got.trouble)
        else:
            told, after[gpu] = _answering(got, memory, look.branch, limits)
            signals.extend(told)
    return signals, after


def _kinds(failures: Mapping[GpuUuid, Failed]) -> set[Trouble]:
    return {each.trouble for each in failures.values()}


def _trouble(gpu: GpuUuid, failed: Failed, look: NodeReadings) -> Signal:
    scope = Scope(gpu=gpu)
    named = _TROUBLES.get(failed.trouble)
    if named is None:
        return CannotTell(
            source=Source.POLL, scope=scope, name=NVML, at=look.at, detail=failed.text
        )
    name, need = named
    text = failed.text
    if failed.trouble is Trouble.MISSING:
        text = f"{gpu} was at {look.places.get(gpu, 'an unknown address')}, NVML does not have it"
        text += " any more; see dmesg, or, if it was taken out, acknowledge that (tessera ack)"
    return Fault(source=Source.POLL, scope=scope, name=name, need=need, at=look.at, detail=text)


def _uncounted(look: NodeReadings) -> Signal:
    """Nothing of it is published, so nothing is withheld; it is shown."""
    if not look.uncounted:
        return Well(source=Source.POLL, scope=NODE, name="gpu-not-counted", at=look.at)
    where = _where(look)
    return Fault(
        source=Source.POLL,
        scope=NODE,
        name="gpu-not-counted",
        need=Need.WATCH,
        at=look.at,
        detail=f"on the PCI bus but not in NVML: {where}; see dmesg",
        place=where,
    )


def _where(look: NodeReadings) -> str:
    return ", ".join(str(each) for each in look.uncounted)


def _answering(
    look: GpuReadings, memory: GpuMemory, branch: int, limits: Limits
) -> tuple[list[Signal], GpuMemory]:
    scope = Scope(gpu=look.gpu)
    signals: list[Signal] = []
    action = look.recovery if isinstance(look.recovery, int) else memory.action
    if memory.trouble in _ENDED_BY_RESET or _advice_gone(memory.action, action, branch):
        signals.append(ResetSeen(gpu=look.gpu, at=look.at))
    names = (NVML, *(name for name, _ in _TROUBLES.values()))
    signals += (Well(source=Source.POLL, scope=scope, name=name, at=look.at) for name in names)
    signals += weigh_unread(look)
    signals += weigh_states(look, branch)
    told, history = weigh_times(look, memory.history, limits)
    return [*signals, *told], GpuMemory(action=action, history=history)


def _advice_gone(before: int, now: int, branch: int) -> bool:
    """The marks behind this advice live in the GPU and go with a reset alone."""
    gone = recovery_action(now, branch) is RecoveryAction.NONE
    return gone and NEEDS[recovery_action(before, branch)] in _RESETS
