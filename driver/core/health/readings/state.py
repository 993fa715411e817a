"""Readings that mean something by themselves: one look is enough to say fault or well.

Why it exists: this is the table of what each state of a GPU asks for, and nothing else. Source of
the limits: NVIDIA's memory error and GPU debug guides, and DCGM's health watches.

What could not be read says nothing here. Must not know NVML, time, or what was read before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from driver.core.health.items import ROW_PENDING
from driver.core.health.kernel.verdict_recovery import recovery_faults
from driver.core.health.readings.values import (
    Clocks,
    Fabric,
    GpuReadings,
    ModePair,
    Pages,
    PcieLink,
    Reading,
    Repairs,
    Rows,
    value,
)
from driver.core.health.signals import Fault, Need, Scope, Signal, Source, Well
from driver.core.ids import GpuUuid

T = TypeVar("T")

MANY_PAGES: Final = 15
"""Pages retired for double-bit errors: more is worth a look, and from 63 on none are left."""
NO_PAGES_LEFT: Final = 63
LOADED: Final = 10
"""Percent of use from which on a PCIe link must run at full speed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`need` NOTHING: this state is in order."""

    name: str
    need: Need = Need.NOTHING
    detail: str = ""
    place: str = ""

    def signal(self, gpu: GpuUuid, at: float) -> Signal:
        scope = Scope(gpu=gpu)
        if self.need is Need.NOTHING:
            return Well(source=Source.POLL, scope=scope, name=self.name, at=at)
        return Fault(
            source=Source.POLL,
            scope=scope,
            name=self.name,
            need=self.need,
            at=at,
            detail=self.detail,
            place=self.place,
        )


def found(name: str, need: Need, detail: str, *, when: bool = True, place: str = "") -> Finding:
    """The fault `when` it holds, else that the state is in order."""
    return Finding(name=name, need=need, detail=detail, place=place) if when else Finding(name=name)


def weigh_states(look: GpuReadings, branch: int) -> list[Signal]:
    """Of one look. `branch`: the driver's, `580`: it decides what a number means."""
    signals: list[Signal] = []

    def weigh(reading: Reading[T], decide: Callable[[T], list[Finding]]) -> None:
        read = value(reading)
        if read is not None:
            signals.extend(each.signal(look.gpu, look.at) for each in decide(read))

    action = value(look.recovery)
    if action is not None:
        signals.append(recovery_faults(action, branch, gpu=look.gpu, at=look.at))
    weigh(look.uncorrected, lambda count: [_uncorrected(count, look)])
    weigh(look.sram_threshold, _sram)
    weigh(look.rows, _rows)
    weigh(look.pages, _pages)
    weigh(look.repairs, _repairs)
    weigh(look.unrepairable, _unrepairable)
    weigh(look.inforom_well, _inforom)
    weigh(look.mig, _mode)
    weigh(look.pcie, lambda link: _pcie(link, look))
    weigh(look.fabric, _fabric)
    return signals


def _uncorrected(count: int, look: GpuReadings) -> Finding:
    """The count holds until a reset. An error that the driver has dealt with, as it says itself, or
    whose row waits to be replaced, only degrades.
    """
    remapped = isinstance(look.rows, Rows) and look.rows.pending
    handled = remapped or look.recovery == 0
    return found(
        "ecc-uncorrected",
        Need.WATCH if handled else Need.RESET,
        f"{count} uncorrectable memory errors since the last reset",
        when=count > 0,
    )


def _sram(exceeded: bool) -> list[Finding]:
    text = "more uncorrectable SRAM errors than a good board has; run the field diagnostic"
    return [found("sram-threshold", Need.OPERATOR, text, when=exceeded)]


def _rows(rows: Rows) -> list[Finding]:
    return [
        found(
            "row-remap-failure",
            Need.OPERATOR,
            f"a memory row could not be replaced, {rows.uncorrectable} were before; the board is to"
            " be exchanged",
            when=rows.failure,
        ),
        found(
            ROW_PENDING,
            Need.WATCH,
            "a memory row is replaced at the next reset of the GPU",
            when=rows.pending,
        ),
    ]


def _pages(pages: Pages) -> list[Finding]:
    return [
        found(
            "page-retirement",
            Need.OPERATOR if pages.double_bit >= NO_PAGES_LEFT else Need.WATCH,
            f"{pages.double_bit} memory pages are retired for double-bit errors",
            when=pages.double_bit > MANY_PAGES,
        ),
        found(
            "page-retirement-pending",
            Need.WATCH,
            "a memory page is retired at the next reset of the GPU",
            when=pages.pending,
        ),
    ]


def _repairs(repairs: Repairs) -> list[Finding]:
    waiting = [n for n, wanted in (("channel", repairs.channel), ("TPC", repairs.tpc)) if wanted]
    text = f"{' and '.join(waiting)} repair is done at the next reset of the GPU"
    return [found("repair-pending", Need.WATCH, text, when=bool(waiting))]


def _unrepairable(flag: bool) -> list[Finding]:
    text = "the GPU has memory that cannot be repaired; the board is to be exchanged"
    return [found("unrepairable-memory", Need.OPERATOR, text, when=flag)]


def _inforom(well: bool) -> list[Finding]:
    text = "the InfoROM is corrupt; if a reset does not help, the board is to be exchanged"
    return [found("inforom-corrupt", Need.RESET, text, when=not well)]


def _mode(mode: ModePair) -> list[Finding]:
    wanted = "on" if mode.pending else "off"
    text = f"MIG is to be switched {wanted} at the next reset of the GPU"
    return [found("mig-mode-pending", Need.WATCH, text, when=mode.pending != mode.current)]


def _pcie(link: PcieLink, look: GpuReadings) -> list[Finding]:
    """An idle GPU saves power with a slow link, so a slow link says something only under load."""
    slow = link.width < link.max_width or link.generation < link.max_generation
    if slow and not _loaded(look):
        return []
    text = (
        f"PCIe runs at generation {link.generation} x{link.width}, the link could do generation"
        f" {link.max_generation} x{link.max_width}"
    )
    return [found("pcie-link", Need.WATCH, text, when=slow)]


def _loaded(look: GpuReadings) -> bool:
    if isinstance(look.load, int):
        return look.load >= LOADED
    return isinstance(look.clocks, Clocks) and not look.clocks.idle


def _fabric(fabric: Fabric) -> list[Finding]:
    """Whether it is ready at all is a matter of time, and weighed elsewhere."""
    if not fabric.ready:
        return []
    need = Need.NOTHING
    if fabric.degraded:
        need = Need.WATCH
    if fabric.unhealthy or fabric.status:
        need = Need.RESET
    if fabric.misconfigured:
        need = Need.OPERATOR
    said = ", ".join(fabric.notes) or f"status {fabric.status}"
    return [Finding(name="fabric-health", need=need, detail=f"NVLink fabric: {said}")]
