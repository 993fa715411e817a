"""The taints that a judgement puts on a device: at most one for each family.

Why it exists: a scheduler and a person who reads a slice both see only these. One taint for each
error would reach the limit of sixteen, and a later harmless one must not replace a grave one. Must
not know evidence rules.

| family | when | effect |
| --- | --- | --- |
| `fault` | it needs a reset, a reboot or an operator | NoSchedule; NoExecute by opt-in |
| `unknown` | it could not be looked at for too long | NoSchedule |
| `degraded` | it works, and is to be seen to when idle | None |

The value names the worst reason, of several alike the oldest, so that it changes seldom.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from api.resource.types import Taint, TaintEffect
from driver.core.health.judgement import Judgement, Reason, State

FAULT: Final = "fault"
UNKNOWN: Final = "unknown"
DEGRADED: Final = "degraded"


def taints(
    judgement: Judgement,
    driver: str,
    noexecute_reasons: Collection[str] = (),
) -> tuple[Taint, ...]:
    """`noexecute_reasons`: names of faults for which pods that run are to be ended."""
    return tuple(_taints(judgement.reasons, driver, noexecute_reasons))


def _taints(reasons: tuple[Reason, ...], driver: str, ending: Collection[str]) -> Iterator[Taint]:
    hard = [r.item.name for r in reasons if r.state.hard]
    unknown = [r.item.name for r in reasons if r.state is State.UNKNOWN]
    degraded = [r.item.name for r in reasons if r.state is State.DEGRADED]
    if hard:
        chosen = [name for name in hard if name in ending]
        effect = TaintEffect.NO_EXECUTE if chosen else TaintEffect.NO_SCHEDULE
        yield Taint(key=f"{driver}/{FAULT}", value=(chosen or hard)[0], effect=effect)
    if unknown:
        yield Taint(key=f"{driver}/{UNKNOWN}", value=unknown[0], effect=TaintEffect.NO_SCHEDULE)
    if degraded:
        yield Taint(key=f"{driver}/{DEGRADED}", value=degraded[0], effect=TaintEffect.NONE)
