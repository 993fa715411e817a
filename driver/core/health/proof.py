"""What still stands between an item and its end.

Why it exists: a cleared fault is the one mistake that puts a sick GPU back on offer, so the rules
are one table, asked by whoever applies a proof, asks for a probe or explains. Nothing ends with
time, and nothing with a restart of ours.

| what it needs | what must be seen, newer than its last sign | then |
| --- | --- | --- |
| watch | a look that finds it in order; where nobody will look, a reset or a new boot | it ends |
| probe | nothing | a passed probe |
| reset | a reset, a new boot, or, of a state, a look that finds it in order | a passed probe |
| reset, overruled by the GPU's own advice | nothing | a passed probe |
| reset, of a probe that failed or gave no answer | nothing | a probe that passes |
| reboot | a new boot; of a state, as above | a passed probe |
| operator | an acknowledgement with the board's serial number | a passed probe |
| cannot tell | a look that succeeds; where a probe could not run, one that passes | it ends |
| cannot tell, of an earlier boot | nothing | as above, or a passed probe |

An event tells of a moment, so only what was done to the GPU afterwards can prove anything; so it is
with a state whose source was switched off since. A state can be looked at again: that it is in
order shows that whatever it needed was done. This holds no more once the same fault has come back
twice. A GPU that fell off the bus is expected to need a new boot, but where a reset brought it
back, and a probe passes, that is proof as well.

A probe that failed, or did not answer in time, is disproved by the next one that passes: a host
that was too busy, or a driver that was not all there, mends without a reset. One that computed
wrongly is not: that a sick GPU is right once proves nothing.

Of the whole node there is no board to acknowledge, so a new boot does there.

Must not know signals, or time.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from driver.core.health.items import RECOVERY, Item, Kind
from driver.core.health.probe import ERROR, UNRESPONSIVE
from driver.core.health.signals import Need, Source

FLAPPING: Final = 2
"""Returns from which on a state that is in order proves nothing by itself."""
PROBED_AGAIN: Final = frozenset({ERROR, UNRESPONSIVE})
"""Ends of a probe that the next one may disprove."""
OFF_THE_BUS: Final = frozenset({"xid-79", "gpu-lost"})
_NEVER: Final = float("-inf")


class Step(StrEnum):
    """What is waited for next."""

    LOOK = "look"
    RESET = "reset"
    REBOOT = "reboot"
    OPERATOR = "operator"
    PROBE = "probe"


_STEPS: Final = {
    Need.RESET: Step.RESET,
    Need.REBOOT: Step.REBOOT,
    Need.OPERATOR: Step.OPERATOR,
}


def probe_counts_after(item: Item, boot_id: str) -> float | None:
    """The moment after which a passed probe ends it; None while something must be seen before."""
    if item.kind is Kind.UNKNOWN:
        decided = item.need is Need.PROBE or item.source is Source.PROBE
        return item.last if decided or _booted_since(item, boot_id) else None
    match item.weight:
        case Need.PROBE:
            return item.last
        case Need.WATCH:
            return item.last if item.wish else None
        case Need.RESET | Need.REBOOT | Need.OPERATOR:
            return _cured_at(item, boot_id)
        case _:
            return None


def next_step(item: Item, boot_id: str) -> Step:
    if probe_counts_after(item, boot_id) is not None:
        return Step.PROBE
    if item.kind is Kind.UNKNOWN:
        return Step.LOOK
    if item.weight is Need.WATCH:
        return Step.RESET if item.over else Step.LOOK
    if item.weight is Need.OPERATOR and item.scope.gpu is None:
        return Step.REBOOT
    return _STEPS.get(item.weight, Step.LOOK)


def ends_when_well(item: Item) -> bool:
    """A look that finds it in order is all that it takes."""
    if item.kind is Kind.UNKNOWN:
        return item.need is not Need.PROBE
    return item.weight in {Need.PROBE, Need.WATCH}


def ends_with_reset(item: Item) -> bool:
    """A reset or a new boot is all that it takes."""
    return item.kind is Kind.FAULT and item.weight is Need.WATCH and item.over


def _cured_at(item: Item, boot_id: str) -> float | None:
    moments = [at for at in _cures(item, boot_id) if at >= item.last]
    return min(moments, default=None)


def _cures(item: Item, boot_id: str) -> list[float]:
    """Every moment at which what it needs was done, or long ago where it was not."""
    # What was noted under another boot id has been followed by a boot, whatever the clocks say.
    boot = item.last if _booted_since(item, boot_id) else _NEVER
    steady = item.returns < FLAPPING
    well = _newer(item, item.well) if steady and not item.of_event else _NEVER
    if item.name == RECOVERY and steady:
        well = _newer(item, item.well)
    reset = _newer(item, item.reset)
    if item.source is Source.PROBE and (item.suspect or (steady and item.name in PROBED_AGAIN)):
        return [item.last]
    match item.weight:
        case Need.RESET:
            return [reset, boot, well]
        case Need.OPERATOR if item.scope.gpu is not None:
            at = item.acknowledged.at if item.acknowledged else None
            return [_newer(item, at)]
        case _:
            return [boot, well, reset if steady and item.name in OFF_THE_BUS else _NEVER]


def _booted_since(item: Item, boot_id: str) -> bool:
    return bool(item.boot_id and boot_id) and item.boot_id != boot_id


def _newer(item: Item, at: float | None) -> float:
    return at if at is not None and at > item.last else _NEVER
