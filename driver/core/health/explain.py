"""A judgement in plain English: what, since when, how often, what clears it, and who must act.

Why it exists: a device that is withheld without a reason gets its node rebooted. The same lines
answer a pod's event, the command line and the web page. Must not know where they are shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from driver.core.devices import EVERY_SLOT
from driver.core.health.items import Item, Kind
from driver.core.health.judgement import Judgement, Reason, State
from driver.core.health.proof import PROBED_AGAIN, Step
from driver.core.health.signals import Need

_STATES: Final = {
    State.READY: "ready",
    State.DEGRADED: "degraded: it is given out, and should be seen to when idle",
    State.UNKNOWN: "withheld: nobody can tell whether it works",
    State.RESET: "withheld until the GPU is reset and a probe passes",
    State.REBOOT: "withheld until the node is rebooted and a probe passes",
    State.OPERATOR: "withheld until an operator decides",
}
_PROBE_LEFT: Final = "withheld until a probe passes"
_STEPS: Final = {
    Step.LOOK: ("a look that finds it in order", "nobody: Tessera looks again by itself"),
    Step.RESET: ("a GPU reset", "an administrator, once no pod uses the GPU"),
    Step.REBOOT: ("a reboot of the node", "an administrator, once the node is drained"),
    Step.OPERATOR: (
        "a repair, and an acknowledgement with the board's serial number (tessera ack)",
        "an operator: the board probably has to be replaced",
    ),
    Step.PROBE: ("a passed probe", "nobody: Tessera probes it as soon as it is idle"),
}


def explain(judgement: Judgement) -> tuple[str, ...]:
    """The judgement, then for each reason what it is, and what would clear it."""
    since = f", since {moment(judgement.since)}" if judgement.since is not None else ""
    return (_state(judgement) + since, *_all(judgement.reasons))


def summary(judgement: Judgement) -> str:
    """One line for an event or an error: the worst reason alone."""
    if not judgement.reasons or judgement.state is State.READY:
        return _STATES[judgement.state]
    worst = judgement.reasons[0]
    clears, who = clearing(worst)
    return (
        f"{worst.item.name}{_detail(worst.item)}, since {moment(worst.item.first)};"
        f" clears by: {clears}; to act: {who}"
    )


def _state(judgement: Judgement) -> str:
    """What is left to be done, if the rest was."""
    steps = {reason.step for reason in judgement.deciding}
    return (
        _PROBE_LEFT if judgement.state.hard and steps == {Step.PROBE} else _STATES[judgement.state]
    )


def clearing(reason: Reason) -> tuple[str, str]:
    """What would clear it, and who must act next."""
    item = reason.item
    if item.passing:
        return "nothing to clear", "nobody"
    clears, who = _STEPS[reason.step]
    if reason.step is Step.LOOK and item.kind is Kind.UNKNOWN:
        clears = "a look that succeeds"
    if reason.step not in {Step.PROBE, Step.LOOK} and item.weight is not Need.WATCH:
        clears += ", then a passed probe"
    if item.weight is Need.WATCH and item.wish:
        clears += ", or a GPU reset"
    if reason.step is Step.PROBE and item.hard and item.name in PROBED_AGAIN:
        who = "nobody: Tessera probes it again while it is idle; if it stays, reset the GPU"
    if item.suspect:
        who = "an administrator: most GPUs say the same at once, look at the driver and at Tessera"
    return clears, who


def moment(at: float) -> str:
    """In UTC, to the second."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{at:.0f} s after the epoch"


def _all(reasons: tuple[Reason, ...]) -> Iterator[str]:
    for reason in reasons:
        item = reason.item
        clears, who = clearing(reason)
        yield f"{item.name}{_detail(item)}: {_told(reason)}; {_seen(item)}"
        yield f"  clears by: {clears}; to act: {who}{_done(item)}"


def _told(reason: Reason) -> str:
    item = reason.item
    where = f" at slots {item.slots:#b}" if item.slots != EVERY_SLOT else ""
    notes = [f"by {item.source}{where}"]
    if item.injected:
        notes.append("injected by a test, withholds nothing")
    if item.kind is Kind.UNKNOWN:
        notes.append("cannot be told" if reason.state.withheld else "cannot be told for now")
    if item.suspect:
        notes.append("suspect: most GPUs at once")
    if item.returns:
        notes.append(f"came back {item.returns} times within a day")
    if item.weight is not item.need and not item.injected:
        notes.append("the GPU itself asks for no reset")
    return ", ".join(notes)


def _seen(item: Item) -> str:
    if item.count == 1:
        return f"seen once, {moment(item.first)}"
    return f"seen {item.count} times from {moment(item.first)} to {moment(item.last)}"


def _detail(item: Item) -> str:
    return f" ({item.detail})" if item.detail else ""


def _done(item: Item) -> str:
    """The steps that were taken already."""
    by = item.acknowledged
    steps = [
        f"; {what} {moment(at)}"
        for what, at in (
            ("in order since", item.well),
            ("reset", item.reset),
            (f"acknowledged by {by.by}" if by else "", by.at if by else None),
        )
        if at is not None and at > item.last
    ]
    return "".join(steps)
