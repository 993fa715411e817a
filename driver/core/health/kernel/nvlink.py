"""What Xid 74 (NVLink up to 4) and Xids 144 to 150 (NVLink 5) say about a link.

Why it exists: with these codes the code decides nothing. Some are noise, some take a GPU away, and
the difference stands in register values. Must not know Xid lines, nor what follows for a device.

Source: NVIDIA's Xid catalogue, workflow for Xid 74; printing code of the open kernel modules.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_HEX: Final = r"0x[0-9a-fA-F]{1,8}"
_NVLINK4: Final = re.compile(rf"\blink (\d{{1,3}}) ?\(({_HEX}(?:,? {_HEX}){{6}})\)")
_NVLINK5: Final = re.compile(
    r"(?P<unit>[A-Za-z][\w/ ]{0,63}?) (?P<severity>Fatal|Nonfatal|Non-fatal|Link Fatal)"
    r" XC(?P<contain>\d) i(?P<injected>\d) Link (?P<link>-?\d{1,4})"
    rf" ?\((?P<words>{_HEX}(?:,? {_HEX}){{1,9}})\)"
)


def _bits(*numbers: int) -> int:
    return sum(1 << n for n in numbers)


# Registers that carry meaning, by position: first, third, fourth, fifth.
_IGNORED: Final = {0: _bits(0, 23, 30)}
_CORRECTED: Final = {4: _bits(20, 23, 26, 29)}
_SECONDARY: Final = {0: _bits(1, 20), 3: _bits(16, 17)}
_READ: Final = (0, 2, 3, 4)


class Nvlink4Verdict(StrEnum):
    IGNORE = "ignore"
    CORRECTED = "corrected"
    """A threshold of corrected errors; the link goes on."""
    SECONDARY = "secondary"
    """The cause is somewhere else: another Xid, the peer GPU or a switch."""
    FAULT = "fault"


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvlink4:
    """The seven registers of Xid 74, in the order printed."""

    link: int
    registers: tuple[int, ...]

    @property
    def verdict(self) -> Nvlink4Verdict:
        """The worst of all bits. A bit that is in no list, and a line without bits, is a fault."""
        secondary = corrected = unlisted = 0
        for place in _READ:
            left = self.registers[place] & ~_IGNORED.get(place, 0)
            secondary |= left & _SECONDARY.get(place, 0)
            corrected |= left & _CORRECTED.get(place, 0)
            unlisted |= left & ~_SECONDARY.get(place, 0) & ~_CORRECTED.get(place, 0)
        if unlisted or not any(self.registers[p] for p in _READ):
            return Nvlink4Verdict.FAULT
        if secondary:
            return Nvlink4Verdict.SECONDARY
        return Nvlink4Verdict.CORRECTED if corrected else Nvlink4Verdict.IGNORE


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvlink5:
    """`link` None: no single link (printed as -1). `fatal`: as the driver's own text says."""

    unit: str
    fatal: bool
    link: int | None
    info: int
    status: int
    injected: bool = False
    contained: bool = False


def parse_nvlink4(text: str) -> Nvlink4 | None:
    found = _NVLINK4.search(text)
    if found is None:
        return None
    registers = tuple(int(word, 16) for word in re.split(r",? ", found[2]))
    return Nvlink4(link=int(found[1]), registers=registers)


def parse_nvlink5(text: str) -> Nvlink5 | None:
    found = _NVLINK5.match(text)
    if found is None:
        return None
    words = [int(word, 16) for word in re.split(r",? ", found["words"])]
    link = int(found["link"])
    return Nvlink5(
        unit=found["unit"],
        fatal=found["severity"] in {"Fatal", "Link Fatal"},
        link=link if link >= 0 else None,
        info=words[0],
        status=words[1],
        injected=found["injected"] != "0",
        contained=found["contain"] != "0",
    )
