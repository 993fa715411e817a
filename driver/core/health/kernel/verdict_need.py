"""What one Xid needs by the catalogue and by its own text, before the driver's action is asked.

Why it exists: for most codes a row decides; for links the registers do, and where the text and the
table contradict each other neither may decide alone. Must not know scopes, nor the recovery action.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from driver.core.health.kernel.catalogue import NEEDS, Catalogue, XidClass, XidRow
from driver.core.health.kernel.nvlink import Nvlink4Verdict, Nvlink5
from driver.core.health.kernel.nvlink_table import Outcome
from driver.core.health.kernel.xid import NVLINK4, NVLINK5, Xid
from driver.core.health.signals import Need

_OUTCOMES: Final[Mapping[Outcome, Need]] = {
    Outcome.IGNORE: Need.NOTHING,
    Outcome.FOLLOW: Need.NOTHING,
    Outcome.RESET: Need.RESET,
}
_REGISTERS: Final[Mapping[Nvlink4Verdict, Need]] = {
    Nvlink4Verdict.IGNORE: Need.NOTHING,
    Nvlink4Verdict.CORRECTED: Need.WATCH,
    Nvlink4Verdict.SECONDARY: Need.WATCH,
    Nvlink4Verdict.FAULT: Need.RESET,
}


def catalogue_need(xid: Xid, row: XidRow | None, catalogue: Catalogue, branch: int | None) -> Need:
    """An unknown code needs a probe: it is seen, and neither believed nor ignored. So does an error
    of NVLink 5 without its text, as NVML's events tell it: that a test injected it, and which row
    it is, stands in the text alone. The kernel's line and the recovery action say more at once.
    """
    if row is None or (xid.code in NVLINK5 and not xid.text):
        return Need.PROBE
    if xid.nvlink5 is not None:
        return _nvlink5(xid.code, xid.nvlink5, catalogue, branch)
    if xid.nvlink4 is not None and row.cls is XidClass.DECODE:
        return _REGISTERS[xid.nvlink4.verdict]
    if xid.code == NVLINK4 and row.cls is XidClass.DECODE and xid.text:
        return Need.RESET  # older drivers print the link without its registers
    return NEEDS[row.cls]


def _nvlink5(code: int, error: Nvlink5, catalogue: Catalogue, branch: int | None) -> Need:
    """A row that is not in the table is judged by the driver's own word.

    Where row and word contradict each other the device is degraded, until the recovery action says
    more: boards with NVLink 5 always have one.
    """
    found = catalogue.nvlink5.find(code, error, branch)
    if found is None:
        return Need.RESET if error.fatal else Need.WATCH
    if found.row.fatal is not None and found.row.fatal != error.fatal:
        return Need.WATCH
    return _OUTCOMES[found.outcome]
