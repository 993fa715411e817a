"""Tells people what changed: Events on the node, the node's condition, metrics, log lines.

Why it exists: each is a few words about the same change, made from one comparison of two
judgements. What was held against a GPU before this plugin came to lead is no change: whoever led
then has told it. Must not know evidence rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

from driver.core.health.explain import summary
from driver.core.health.judge import READY, Judgement, State
from driver.core.ids import GpuUuid
from driver.observe.logs import Log
from driver.plugin.health.condition import Condition
from driver.plugin.health.judged import Judged
from driver.plugin.node import Hardware
from driver.ports.events import Reason

log = Log(__name__)

_MESSAGE: Final = 900


class StateMetrics(Protocol):
    def set_gpu_states(self, states: Mapping[str, int]) -> None: ...

    def health_changed(self, state: str) -> None: ...


class Told:
    """Called when the judgement is another one; `lead` when this plugin begins to speak for the
    node, before anything can change, and `follow` when another one may. `known`: the GPUs that the
    node has, there or missing. `tell`: an Event about the node.
    """

    def __init__(
        self,
        judged: Judged,
        hardware: Hardware,
        *,
        known: Callable[[], Collection[GpuUuid]],
        tell: Callable[[Reason, str], None],
        condition: Callable[[Condition], None],
        metrics: StateMetrics,
    ) -> None:
        self._judged = judged
        self._hardware = hardware
        self._known = known
        self._tell = tell
        self._condition = condition
        self._metrics = metrics
        self._leads = False
        self._before: Mapping[GpuUuid, Judgement] = {}
        judged.subscribe(self.changed)

    def lead(self) -> None:
        self.changed()
        self._leads = True

    def follow(self) -> None:
        self._leads = False

    def changed(self) -> None:
        found, inventory = self._judged.judgements, self._hardware.inventory
        before, self._before = self._before, found.gpus
        if self._leads:
            for gpu in before.keys() | found.gpus.keys():
                old, new = before.get(gpu, READY), found.gpus.get(gpu, READY)
                if _head(old) != _head(new):
                    self._changed(gpu, old, new)
        known = self._known()
        there = dict.fromkeys([*(inventory.gpus if inventory else ()), *known], READY)
        gpus = {**there, **found.gpus}
        self._metrics.set_gpu_states(Counter(j.state.value for j in gpus.values()))
        withheld = any(j.state.withheld for j in found.gpus.values())
        # Before the GPUs were read, what was stored can say that the node is not well, if it counts
        # all of them; that it is well it cannot.
        if inventory is not None or found.node.state.withheld or (known and withheld):
            self._condition(condition_of(gpus, found.node))

    def _changed(self, gpu: GpuUuid, before: Judgement, after: Judgement) -> None:
        text = f"GPU {gpu}: {summary(after)}"
        if before.state is not after.state:
            self._metrics.health_changed(after.state.value)
        if after.state.withheld:
            log.warning("GPU or partition withheld", gpu=gpu, reason=summary(after))
            self._tell(Reason.DEVICE_WITHHELD, text)
        elif after.state is State.DEGRADED:
            log.warning("GPU degraded", gpu=gpu, reason=summary(after))
            self._tell(Reason.DEVICE_DEGRADED, text)
        elif before.state is not State.READY:
            log.info("GPU ready again", gpu=gpu)
            self._tell(Reason.DEVICE_READY, text)


def condition_of(gpus: Mapping[GpuUuid, Judgement], node: Judgement) -> Condition:
    """Counts, and the worst of each GPU that is not ready."""
    ready = sum(1 for j in gpus.values() if not j.state.withheld)
    notes = [f"{gpu}: {summary(j)}" for gpu, j in gpus.items() if j.state is not State.READY]
    if node.state is not State.READY:
        notes.insert(0, f"node: {summary(node)}")
    text = "; ".join((f"{ready} of {len(gpus)} GPUs are ready", *notes))
    message = text if len(text) <= _MESSAGE else text[: _MESSAGE - 3] + "..."
    states = {j.state for j in gpus.values()} | {node.state}
    if any(state.hard for state in states):
        return Condition(status="False", reason="Withheld", message=message)
    if State.UNKNOWN in states:
        return Condition(status="Unknown", reason="CannotTell", message=message)
    if State.DEGRADED in states:
        return Condition(status="True", reason="Degraded", message=message)
    return Condition(status="True", reason="AllReady", message=message)


def _head(judgement: Judgement) -> tuple[State, str]:
    return judgement.state, judgement.reasons[0].item.name if judgement.deciding else ""
