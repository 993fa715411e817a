"""A PCI address as NVIDIA's drivers print it: `0000:3b:00`, with or without a function.

Must not know which line it stands in. GPUs are function 0; where a line names none, that is meant.
"""

from __future__ import annotations

import re
from typing import Final

from driver.core.snapshot import PciAddress

BDF: Final = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"
"""To be put into larger expressions."""

_PARTS: Final = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-7]))?")


def address(text: str) -> PciAddress | None:
    match = _PARTS.fullmatch(text)
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    return PciAddress(
        domain=int(domain, 16),
        bus=int(bus, 16),
        device=int(device, 16),
        function=int(function or "0"),
    )
