"""One `SXid` line of an NVSwitch into a value.

    nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress ... (First)

Why it exists: a switch serves all GPUs of the node, so its errors are nobody's and everybody's.
Must not know what a code means. One event is several lines; only the first names a severity.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from driver.core.health.kernel.address import BDF, address
from driver.core.snapshot import PciAddress

_LINE: Final = re.compile(
    rf"nvidia-nvswitch(?P<switch>\d{{1,4}}): SXid \(PCI:(?P<bdf>{BDF})\):"
    r" ?(?P<code>\d{1,9})(?:, ?(?P<rest>.*)|\s*)",
    re.DOTALL,
)
_REST: Final = re.compile(
    r"(?P<severity>Non-fatal|Fatal)(?:, Link (?P<link>-?\d{1,4}))?,? ?(?P<text>.*)", re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SXid:
    """`fatal` None: a further line of an event, with data only."""

    switch: int
    address: PciAddress
    code: int
    fatal: bool | None = None
    link: int | None = None
    text: str = ""


def parse_sxid(line: str) -> SXid | None:
    """None where the line is not an SXid, or is not whole."""
    match = _LINE.fullmatch(line)
    where = address(match["bdf"]) if match else None
    if match is None or where is None:
        return None
    rest = match["rest"] or ""
    first = _REST.fullmatch(rest)
    link = int(first["link"]) if first and first["link"] else None
    return SXid(
        switch=int(match["switch"]),
        address=where,
        code=int(match["code"]),
        fatal=first["severity"] == "Fatal" if first else None,
        link=link if link is not None and link >= 0 else None,
        text=(first["text"] if first else rest).strip(),
    )
