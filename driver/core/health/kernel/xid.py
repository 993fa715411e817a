"""One `NVRM: Xid` line into a value, in every form that the driver prints.

    NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.
    NVRM: Xid (PCI:0000:3b:00 GPU-I:01 GPU-CI:00): 31, pid=7, name=python3, Ch 00000008, ...

Why it exists: a code alone does not say which partition, whether a test wrote it, or what the
driver itself asks for; all of that stands in the text. Must not know what a code means for the
device (that is the catalogue), nor the records around the line.

Source: the printing code of NVIDIA's open kernel modules, branches 515 to 595. Up to 565 a line
always names a process, `'<unknown>'` where there is none; later only where there is one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from driver.core.health.kernel.address import BDF, address
from driver.core.health.kernel.nvlink import Nvlink4, Nvlink5, parse_nvlink4, parse_nvlink5
from driver.core.snapshot import PciAddress

_LINE: Final = re.compile(
    rf"NVRM: Xid \(PCI:(?P<bdf>{BDF})"
    r"(?: GPU-I:(?P<gi>\d{1,4})(?: GPU-CI:(?P<ci>\d{1,4}))?)?\):"
    r" ?(?P<code>\d{1,9})(?:, ?(?P<rest>.*)|\.?\s*)",
    re.DOTALL,
)
_CONTEXT: Final = re.compile(
    r"pid=(?P<pid>\d{1,10}|[^,\s]{1,32})(?:, name=(?P<name>.*?))?(?:, |$)", re.DOTALL
)
_CAUSED: Final = re.compile(r"caused by previous Xid (\d{1,9})\s*$")
_PLACE: Final = re.compile(r"\(GPC (\d{1,3}), TPC (\d{1,3})")
_RECOVERY: Final = re.compile(
    r"GPU recovery action changed from (0x[0-9a-fA-F]{1,8}|\d{1,9}) \(([^)]*)\)"
    r" to (0x[0-9a-fA-F]{1,8}|\d{1,9}) \(([^)]*)\)"
)
_FLAGS: Final = re.compile(r"\bRST: (Yes|No)(?:, D-RST: (Yes|No))?")
_MEMORY: Final = re.compile(r"\b(SRAM|DRAM|FB|framebuffer)\b", re.IGNORECASE)
_CONTAINMENT: Final = re.compile(r"(?:Contained|Uncontained)\b")

EXCEPTION, PAGE_FAULT, DOUBLE_BIT, NVLINK4 = 13, 31, 48, 74
NVLINK5: Final = range(144, 151)
RECOVERY_CHANGED, CHANNEL_RETIRED = 154, 160


class Pid(Enum):
    """The line has a place for a process, and the driver did not know it."""

    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryChange:
    """Numbers and names of Xid 154; the names decide where a number has two meanings."""

    before: int
    before_name: str
    after: int
    after_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Xid:
    """`address` None: NVML told it, and names the GPU itself. `gi`, `ci`: NVML's instance ids, None
    where the driver names none. `pid` None: the line has no place for one. `place`: where on the
    chip, to tell repeats at one place from others. `wants_reset`: RST or D-RST of 94 and 95; None
    where the text has no such flags.
    """

    address: PciAddress | None = None
    code: int
    gi: int | None = None
    ci: int | None = None
    pid: int | Pid | None = None
    process: str = ""
    text: str = ""
    place: str = ""
    caused_by: int | None = None
    wants_reset: bool | None = None
    drain_first: bool = False
    recovery: RecoveryChange | None = None
    nvlink4: Nvlink4 | None = None
    nvlink5: Nvlink5 | None = None

    @property
    def injected(self) -> bool:
        return self.nvlink5 is not None and self.nvlink5.injected


def parse_xid(line: str) -> Xid | None:
    """None where the line is not an Xid, or is not whole."""
    match = _LINE.fullmatch(line)
    where = address(match["bdf"]) if match else None
    if match is None or where is None:
        return None
    text = match["rest"] or ""
    context = _CONTEXT.match(text)
    if context is not None:
        text = text[context.end() :]
    code = int(match["code"])
    flags = _FLAGS.search(text) if _CONTAINMENT.match(text) else None
    caused = _CAUSED.search(text)
    return Xid(
        address=where,
        code=code,
        gi=_number(match["gi"]),
        ci=_number(match["ci"]),
        pid=_pid(context),
        process=_process(context),
        text=text.strip(),
        place=_place(code, text),
        caused_by=int(caused[1]) if caused else None,
        wants_reset=None if flags is None else "Yes" in flags.groups(),
        drain_first=flags is not None and flags[2] == "Yes",
        recovery=_recovery(text) if code == RECOVERY_CHANGED else None,
        nvlink4=parse_nvlink4(text) if code == NVLINK4 else None,
        nvlink5=parse_nvlink5(text) if code in NVLINK5 else None,
    )


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _pid(context: re.Match[str] | None) -> int | Pid | None:
    if context is None:
        return None
    return int(context["pid"]) if context["pid"].isdecimal() else Pid.UNKNOWN


def _process(context: re.Match[str] | None) -> str:
    name = (context["name"] or "") if context else ""
    return "" if name.strip("\"'<>") == "unknown" else name


def _place(code: int, text: str) -> str:
    if code == EXCEPTION:
        found = _PLACE.search(text)
        return f"gpc{found[1]}-tpc{found[2]}" if found else ""
    if code == DOUBLE_BIT:
        found = _MEMORY.search(text)
        return "" if found is None else "sram" if found[1].upper() == "SRAM" else "dram"
    if code == CHANNEL_RETIRED and " LTS" in text:
        return "fpb-lts" if "FPB" in text else "lts"
    return ""


def _recovery(text: str) -> RecoveryChange | None:
    found = _RECOVERY.search(text)
    if found is None:
        return None
    before, before_name, after, after_name = found.groups()
    return RecoveryChange(
        before=int(before, 0) if before.startswith("0x") else int(before),
        before_name=before_name,
        after=int(after, 0) if after.startswith("0x") else int(after),
        after_name=after_name,
    )
