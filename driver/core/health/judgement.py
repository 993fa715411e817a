"""A judgement of a device, as everybody who acts on it gets it.

Why it exists: taints, the health stream, the node's condition, the refusal to prepare and what is
explained to an operator must never say different things, so all are made from this one value. Must
not know any of them, or how it is come by: `judge.py` does that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from driver.core.health.items import Item
from driver.core.health.proof import Step
from driver.core.ids import DeviceName, GpuUuid


class State(StrEnum):
    """From best to worst."""

    READY = "ready"
    DEGRADED = "degraded"
    UNKNOWN = "unknown"
    RESET = "reset"
    REBOOT = "reboot"
    OPERATOR = "operator"

    @property
    def rank(self) -> int:
        return _RANK[self]

    @property
    def withheld(self) -> bool:
        """No new claim gets it."""
        return self.rank >= _RANK[State.UNKNOWN]

    @property
    def hard(self) -> bool:
        """A claim that has it already is not prepared either."""
        return self.rank >= _RANK[State.RESET]


_RANK: Final = {state: at for at, state in enumerate(State)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One item, what it makes of the device, and what is waited for next."""

    item: Item
    state: State
    step: Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """`reasons`: the worst first. `since`: when the first of those that decide was first seen."""

    state: State = State.READY
    reasons: tuple[Reason, ...] = ()
    since: float | None = None

    @property
    def deciding(self) -> tuple[Reason, ...]:
        """Those that make it what it is; nothing where it is ready."""
        if self.state is State.READY:
            return ()
        return tuple(r for r in self.reasons if r.state is self.state)

    @property
    def waits_for(self) -> tuple[Step, ...]:
        """All that has to happen before a claim may have it."""
        steps = {r.step for r in self.reasons if r.state.withheld}
        return tuple(step for step in Step if step in steps)


READY: Final = Judgement()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgements:
    """`gpus`: also those that have no device any more. `node`: what concerns it as a whole. `due`:
    when time alone would change this, if ever.
    """

    devices: Mapping[DeviceName, Judgement] = field(default_factory=dict)
    gpus: Mapping[GpuUuid, Judgement] = field(default_factory=dict)
    node: Judgement = READY
    due: float | None = None

    @property
    def state(self) -> State:
        """The worst of the node and of all its GPUs, also of those that are missing."""
        return max((self.node, *self.gpus.values()), key=lambda each: each.state.rank).state
