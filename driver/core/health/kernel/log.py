"""Records of the kernel's log into events, one record at a time.

Why it exists: a few messages span several records, others stand between them, and a position is
kept per record; so what spans records is a value here, and the reader stays a loop. Must not know
how records are read, nor what an event means for a device.

Trust: only the kernel writes facility 0, so a record of another facility is counted and not
believed, unless the caller asks for it. But kernel messages quote what users choose (names of
programs, version strings), and quoting keeps line breaks; so a line counts only at the start of a
record. Messages that the driver itself prints over several lines are known by their first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from driver.core.health.kernel.address import BDF, address
from driver.core.health.kernel.lines import (
    DriverLine,
    FallenOff,
    GpuNamed,
    Trouble,
    parse_driver_line,
    parse_neighbour,
)
from driver.core.health.kernel.record import KERNEL, KernelRecord, UnreadableRecord
from driver.core.health.kernel.sxid import SXid, parse_sxid
from driver.core.health.kernel.xid import Xid, parse_xid
from driver.core.ids import GpuUuid
from driver.core.snapshot import PciAddress

KERNEL_ONLY: Final = frozenset({KERNEL})

_HEADS_KEPT: Final = 32
_HEAD_LIVES_US: Final = 2_000_000
_HEAD: Final = re.compile(rf"NVRM: The NVIDIA GPU (?P<bdf>{BDF})")
_GOES_ON: Final = re.compile(r"NVRM: (?:The NVIDIA GPU |This PCI I/O region )")
_TAIL: Final = re.compile(r"NVRM: (?:.* )?fallen off the bus and is not responding")
_OTHER_TAIL: Final = re.compile(r"NVRM: (?:.* )?is not supported by the")
_ANY_BDF: Final = re.compile(rf"PCI:(?P<bdf>{BDF})")
_SHOWN: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Forged:
    """Looks like ours and is not the driver's: another facility, or quoted in a message."""

    facility: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotUnderstood:
    """The driver's own line about an Xid or SXid, in a form that we do not know."""

    text: str
    address: PciAddress | None


Event = Xid | SXid | FallenOff | GpuNamed | DriverLine | Forged | NotUnderstood | UnreadableRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    """The first record of a message that goes on in later ones."""

    address: PciAddress
    microseconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLog:
    """What spans records. `gpus`: who sits where, as the log itself has said."""

    gpus: Mapping[PciAddress, GpuUuid] = field(default_factory=dict)
    heads: tuple[_Head, ...] = ()


def feed(
    state: KernelLog,
    record: KernelRecord | UnreadableRecord,
    *,
    facilities: frozenset[int] = KERNEL_ONLY,
) -> tuple[KernelLog, tuple[Event, ...]]:
    """Never raises."""
    if isinstance(record, UnreadableRecord):
        return state, (record,)
    if not _concerns_us(record.text):
        return state, ()
    if record.facility not in facilities:
        return state, (Forged(facility=record.facility, text=record.text[:_SHOWN]),)
    first, *more = record.text.split("\n")
    events: list[Event] = []
    lines = [first, *more] if _GOES_ON.match(first) else [first]
    for line in lines:
        state, event = _line(state, line.strip(), record.microseconds)
        if event is not None:
            events.append(event)
    if len(lines) == 1 and any(_looks_like_ours(line) for line in more):
        events.append(Forged(facility=record.facility, text=record.text[:_SHOWN]))
    return state, tuple(events)


def _concerns_us(text: str) -> bool:
    return (
        "NVRM: " in text or "SXid (" in text or "libnccl.so" in text or "orrect" in text  # AER
    )


def _looks_like_ours(line: str) -> bool:
    return "Xid (" in line or "fallen off the bus" in line or _HEAD.search(line) is not None


def _line(state: KernelLog, line: str, now: int) -> tuple[KernelLog, Event | None]:
    if line.startswith("NVRM: Xid"):
        return state, parse_xid(line) or _not_understood(line)
    if line.startswith("NVRM: "):
        return _nvrm(state, line, now)
    if line.startswith("nvidia-nvswitch") and ": SXid" in line:
        return state, parse_sxid(line) or _not_understood(line)
    return state, parse_neighbour(line)


def _nvrm(state: KernelLog, line: str, now: int) -> tuple[KernelLog, Event | None]:
    head = _HEAD.match(line)
    where = address(head["bdf"]) if head else None
    if where is not None:
        if _TAIL.match(line):
            return state, FallenOff(address=where)
        heads = (*_living(state.heads, now), _Head(address=where, microseconds=now))
        return replace(state, heads=heads[-_HEADS_KEPT:]), None
    if _TAIL.match(line):
        state, where = _pop(state, now)
        return state, FallenOff(address=where)
    if _OTHER_TAIL.match(line):
        state, where = _pop(state, now)
        return state, DriverLine(trouble=Trouble.UNSUPPORTED, text=line, address=where)
    event = parse_driver_line(line)
    if isinstance(event, GpuNamed) and state.gpus.get(event.address) != event.gpu:
        state = replace(state, gpus={**state.gpus, event.address: event.gpu})
    return state, event


def _pop(state: KernelLog, now: int) -> tuple[KernelLog, PciAddress | None]:
    """Messages of several GPUs go on in the order in which they began."""
    living = _living(state.heads, now)
    if not living:
        return replace(state, heads=()), None
    return replace(state, heads=living[1:]), living[0].address


def _living(heads: tuple[_Head, ...], now: int) -> tuple[_Head, ...]:
    return tuple(h for h in heads if abs(now - h.microseconds) <= _HEAD_LIVES_US)


def _not_understood(line: str) -> NotUnderstood:
    found = _ANY_BDF.search(line)
    where = address(found["bdf"]) if found else None
    return NotUnderstood(text=line[:_SHOWN], address=where)
