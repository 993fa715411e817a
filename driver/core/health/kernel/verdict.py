"""From an event of the kernel's log to what it says about a device.

Why it exists: code, text, driver branch and the driver's own recovery action each know a part; the
rule that joins them stands here once, for the log and for NVML's events (as an `Xid` without text).
Must not know records, readers, taints, nor what was judged before.

The rule: the catalogue counts at once, because the recovery action is refreshed late. An action
that demands more counts at once too, as a fault of its own of the whole GPU, so the stronger holds.
An action that demands less counts only when it was read after `REASK_SECONDS`, only for codes that
are known to drive it in this branch, and then a probe decides. It never weakens what needs a reboot
or an operator: a GPU off the bus reads "reset", and a row that cannot be replaced stays broken.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from driver.core.health.kernel.lines import DriverLine, FallenOff
from driver.core.health.kernel.log import Event, NotUnderstood
from driver.core.health.kernel.sxid import SXid
from driver.core.health.kernel.verdict_known import (
    NO_JUDGEMENT,
    TEXT_SHOWN,
    Judgement,
    Known,
    on_node,
    unplaced,
)
from driver.core.health.kernel.verdict_lines import LINES, OF_ANY_DEVICE, sxid_need
from driver.core.health.kernel.verdict_xid import judge_xid
from driver.core.health.kernel.xid import Xid
from driver.core.health.signals import NODE, Need, Scope, Source

OFF_THE_BUS: Final = 79


def judge(event: Event, known: Known, *, at: float, source: Source = Source.KERNEL) -> Judgement:
    """Forged, unreadable and naming records say nothing about a device."""
    match event:
        case Xid():
            return judge_xid(event, known, at=at, source=source)
        case FallenOff():
            return _fallen_off(event, known, at, source)
        case SXid():
            return _sxid(event, known, at, source)
        case DriverLine():
            return _driver_line(event, known, at, source)
        case NotUnderstood():
            return _not_understood(event, known, at, source)
        case _:
            return NO_JUDGEMENT


def _fallen_off(event: FallenOff, known: Known, at: float, source: Source) -> Judgement:
    """The same evidence as Xid 79, which may follow or not."""
    if event.address is not None:
        xid = Xid(address=event.address, code=OFF_THE_BUS, text="told without an Xid")
        return judge_xid(xid, known, at=at, source=source)
    detail = "a GPU has fallen off the bus; the record that names it was lost"
    name = f"xid-{OFF_THE_BUS}"
    return Judgement(signals=(on_node(name, Need.WATCH, at=at, source=source, detail=detail),))


def _sxid(event: SXid, known: Known, at: float, source: Source) -> Judgement:
    """A switch serves every GPU of the node. Lines with data only add nothing."""
    if event.fatal is None:
        return NO_JUDGEMENT
    need = sxid_need(known.catalogue.sxids.get(event.code), fatal=event.fatal)
    text = event.text[:TEXT_SHOWN]
    fault = on_node(f"sxid-{event.code}", need, at=at, source=source, detail=text)
    link = "" if event.link is None else f"-link{event.link}"
    return Judgement(signals=(replace(fault, place=f"nvswitch{event.switch}{link}"),))


def _driver_line(line: DriverLine, known: Known, at: float, source: Source) -> Judgement:
    gpu = known.gpu_at(line.address)
    if gpu is None and line.minor is not None:
        gpu = known.minors.get(line.minor)
    if gpu is None and line.trouble in OF_ANY_DEVICE:
        return NO_JUDGEMENT
    need = LINES[line.trouble]
    if gpu is None and line.address is not None:
        need = unplaced(need)
    fault = on_node(line.trouble, need, at=at, source=source, detail=line.text[:TEXT_SHOWN])
    scope = NODE if gpu is None else Scope(gpu=gpu)
    place = "" if line.link is None else f"link{line.link}"
    wanted = need is Need.PROBE and known.has_action and not known.settled
    return Judgement(
        signals=(replace(fault, scope=scope, place=place),), ask_again=gpu if wanted else None
    )


def _not_understood(event: NotUnderstood, known: Known, at: float, source: Source) -> Judgement:
    """The driver has complained and we cannot read it: a probe decides."""
    gpu = known.gpu_at(event.address)
    text = event.text[:TEXT_SHOWN]
    need = Need.WATCH if gpu is None else Need.PROBE
    fault = on_node("xid-unreadable", need, at=at, source=source, detail=text)
    if gpu is None:
        return Judgement(signals=(fault,))
    wanted = known.has_action and not known.settled
    fault = replace(fault, scope=Scope(gpu=gpu))
    return Judgement(signals=(fault,), ask_again=gpu if wanted else None)
