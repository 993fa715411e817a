"""Kernel messages in real format with what must be read from them: `tests/data/xid_corpus`.

A line of text, then what it gives, one JSON value a line, indented and marked with `=`. Nothing
marked: no event. A blank line ends what spans records.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from driver.core.health.kernel.lines import DriverLine, FallenOff, GpuNamed
from driver.core.health.kernel.log import Event, Forged, KernelLog, NotUnderstood, feed
from driver.core.health.kernel.record import UnreadableRecord, parse_record
from driver.core.health.kernel.sxid import SXid
from driver.core.health.kernel.xid import Pid, Xid

FOLDER = Path(__file__).parents[3] / "data" / "xid_corpus"
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.txt")))
_STEP_US, _LATE_US = 1_000, 60_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    raw: bytes
    expected: tuple[object, ...]
    fresh: bool


def entries(name: str) -> Iterator[Entry]:
    """`fresh`: nothing of the records before counts."""
    now, sequence, fresh, open_entry = 1_000_000, 0, True, None
    for line in (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("  = "):
            assert open_entry is not None
            expected = (*open_entry.expected, json.loads(line[4:]))
            open_entry = Entry(raw=open_entry.raw, expected=expected, fresh=open_entry.fresh)
            continue
        if open_entry is not None:
            yield open_entry
            open_entry, fresh = None, False
        if not line:
            fresh = True
        elif not line.startswith("#"):
            sequence, now = sequence + 1, now + _STEP_US
            raw = _raw(line, sequence, now)
            open_entry = Entry(raw=raw, expected=(), fresh=fresh)
            if line.startswith("@late "):
                now += _LATE_US
    if open_entry is not None:
        yield open_entry


def _raw(line: str, sequence: int, now: int) -> bytes:
    head, _, rest = line.partition(" ")
    if head == "@raw":
        return f"{rest}\n".encode()
    facility = int(head.partition("=")[2]) if head.startswith("@facility=") else 0
    text = rest if head.startswith("@") else line
    return f"{facility << 3 | 3},{sequence},{now},-;{text}\n SUBSYSTEM=pci\n".encode()


def read(name: str) -> Iterator[tuple[Entry, tuple[Event, ...]]]:
    state = KernelLog()
    for entry in entries(name):
        state = KernelLog() if entry.fresh else state
        state, events = feed(state, parse_record(entry.raw))
        yield entry, events


def events(*lines: str) -> list[Event]:
    """Of lines that the kernel itself wrote, one after the other."""
    state, found = KernelLog(), list[Event]()
    for number, line in enumerate(lines):
        state, some = feed(state, parse_record(_raw(line, number, number * _STEP_US)))
        found += some
    return found


def described(event: Event) -> object:
    """As the corpus writes it: what is not there is left out."""
    where = getattr(event, "address", None)
    at = str(where) if where else None
    match event:
        case Xid():
            parts = _xid(event)
        case SXid():
            parts = {"sxid": event.code, "switch": event.switch, "at": at}
            parts |= {"fatal": event.fatal, "link": event.link}
        case GpuNamed():
            parts = {"gpu": event.gpu, "at": at}
        case DriverLine():
            parts = {"trouble": str(event.trouble), "at": at}
            parts |= {"minor": event.minor, "link": event.link}
        case Forged():
            parts = {"forged": event.facility}
        case UnreadableRecord():
            parts = {"unreadable": True}
        case FallenOff():
            return {"fallen_off": at}
        case NotUnderstood():
            return {"not_understood": at}
    return {key: value for key, value in parts.items() if value is not None}


def _xid(xid: Xid) -> dict[str, object]:
    parts: dict[str, object] = {"xid": xid.code, "at": str(xid.address)}
    parts |= {"gi": xid.gi, "ci": xid.ci, "caused_by": xid.caused_by, "reset": xid.wants_reset}
    parts["pid"] = xid.pid.value if isinstance(xid.pid, Pid) else xid.pid
    parts |= {"name": xid.process or None, "place": xid.place or None}
    parts |= {"drain": xid.drain_first or None, "injected": xid.injected or None}
    if xid.recovery is not None:
        change = xid.recovery
        parts["recovery"] = [change.before, change.after, change.after_name]
    if xid.nvlink4 is not None:
        parts |= {"link": xid.nvlink4.link, "registers": list(xid.nvlink4.registers)}
    if xid.nvlink5 is not None:
        error = xid.nvlink5
        parts |= {"unit": error.unit, "fatal": error.fatal, "link": error.link}
        parts |= {"info": error.info, "status": error.status}
        parts["contained"] = error.contained or None
    return parts
