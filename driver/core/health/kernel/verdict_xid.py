"""One Xid into faults: catalogue, text, instance and the driver's recovery action joined.

Why it exists: this is where a GPU is taken away or left alone. Must not know lines and records: an
event of NVML's is an `Xid` without text.
"""

from __future__ import annotations

from dataclasses import replace

from driver.core.health.items import RECOVERY
from driver.core.health.kernel.catalogue import XidClass, XidRow
from driver.core.health.kernel.verdict_known import TEXT_SHOWN, Judgement, Known, on_node, unplaced
from driver.core.health.kernel.verdict_need import catalogue_need
from driver.core.health.kernel.verdict_recovery import (
    NEEDS as ACTION_NEEDS,
    RecoveryAction,
    recovery_action,
    recovery_faults,
)
from driver.core.health.kernel.xid import PAGE_FAULT, Pid, Xid
from driver.core.health.signals import Fault, Need, Scope, Signal, Source, Well, stronger
from driver.core.ids import GpuUuid


def judge_xid(
    xid: Xid, known: Known, *, at: float, source: Source, gpu: GpuUuid | None = None
) -> Judgement:
    """`gpu`: where the source names it; else it is found by its address."""
    row = known.catalogue.xids.get(xid.code)
    gpu = gpu or known.gpu_at(xid.address)
    if gpu is None:
        return Judgement(signals=(_unplaced(xid, row, known, at=at, source=source),))
    if xid.recovery is not None:
        value, name = xid.recovery.after, xid.recovery.after_name
        signal = recovery_faults(value, known.branch, gpu=gpu, at=at, source=source, name=name)
        return Judgement(signals=(signal,))
    signals: list[Signal] = [_fault(xid, row, gpu, known, at=at, source=source)]
    action = _action(xid, gpu, known, at=at, source=source)
    if action is not None:
        signals.append(action)
    if row is not None and row.ends is not None:
        signals.append(Well(source=source, scope=Scope(gpu=gpu), name=f"xid-{row.ends}", at=at))
    never = row is not None and row.cls is XidClass.NEVER
    wanted = known.has_action and not known.settled and not never
    return Judgement(signals=tuple(signals), ask_again=gpu if wanted else None)


def _fault(
    xid: Xid, row: XidRow | None, gpu: GpuUuid, known: Known, *, at: float, source: Source
) -> Fault:
    need = catalogue_need(xid, row, known.catalogue, known.branch)
    value = known.actions.get(gpu)
    if known.settled and value is not None and need is Need.RESET:
        need = _overruled(row, known.branch, recovery_action(value, known.branch))
    whole = row is not None and row.whole
    return Fault(
        source=source,
        scope=Scope(gpu=gpu) if whole else Scope(gpu=gpu, gi=xid.gi, ci=xid.ci),
        name=_name(xid, row),
        need=need,
        at=at,
        detail=_detail(xid, row),
        place=_place(xid),
        injected=xid.injected,
    )


def _unplaced(xid: Xid, row: XidRow | None, known: Known, *, at: float, source: Source) -> Fault:
    need = unplaced(catalogue_need(xid, row, known.catalogue, known.branch))
    place = str(xid.address or "")
    detail = f"no GPU of this node is known at {place or 'any address'}; {_detail(xid, row)}"
    fault = on_node(_name(xid, row), need, at=at, source=source, detail=detail)
    return replace(fault, place=place, injected=xid.injected)


def _overruled(row: XidRow | None, branch: int | None, action: RecoveryAction) -> Need:
    """What needs a reset by the catalogue, when the driver has had time to say otherwise."""
    if row is None or row.since is None or branch is None or branch < row.since:
        return Need.RESET
    asked = stronger(Need.PROBE, ACTION_NEEDS[action])
    return asked if stronger(asked, Need.RESET) is Need.RESET else Need.RESET


def _action(xid: Xid, gpu: GpuUuid, known: Known, *, at: float, source: Source) -> Fault | None:
    """The action that can be read, or else what the text of 94 and 95 asks for.

    "None" at this moment is no proof of anything, so it is no signal.
    """
    value = known.actions.get(gpu)
    if value is not None:
        signal = recovery_faults(value, known.branch, gpu=gpu, at=at)
        return signal if isinstance(signal, Fault) else None
    if not xid.wants_reset:
        return None
    wish = "a drain and a reset" if xid.drain_first else "a reset"
    return Fault(
        source=source,
        scope=Scope(gpu=gpu),
        name=RECOVERY,
        need=Need.RESET,
        at=at,
        detail=f"the text of Xid {xid.code} asks for {wish}",
    )


def _name(xid: Xid, row: XidRow | None) -> str:
    return f"xid-{row.joins if row is not None and row.joins is not None else xid.code}"


def _place(xid: Xid) -> str:
    """For a page fault the program: only faults of different programs speak against a GPU."""
    if xid.code == PAGE_FAULT:
        return xid.process
    if xid.nvlink4 is not None:
        return f"link{xid.nvlink4.link}"
    if xid.nvlink5 is not None:
        link = "" if xid.nvlink5.link is None else f"-link{xid.nvlink5.link}"
        return f"{xid.nvlink5.unit}{link}"
    return xid.place


def _detail(xid: Xid, row: XidRow | None) -> str:
    meaning = row.meaning if row is not None else "a code that the catalogue does not have"
    who = ""
    if isinstance(xid.pid, int):
        who = f"; process {xid.process or 'unknown'} ({xid.pid})"
    elif xid.pid is Pid.UNKNOWN and xid.process:
        who = f"; process {xid.process}"
    text = f": {xid.text[:TEXT_SHOWN]}" if xid.text else ""
    return f"{meaning}{who}{text}"
