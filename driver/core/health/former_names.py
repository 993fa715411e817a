"""Names that evidence stored by an earlier version has, and this version does not give any more.

Why it exists: evidence outlives the version that took it, and an item under a name that nobody says
any more would never end. Must not know files, or rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ONCE_UNREAD: Final[Mapping[str, str]] = {
    "recovery-action": "recovery-action-unread",
    "ecc-uncorrected": "ecc-uncorrected-unread",
    "sram-threshold": "sram-threshold-unread",
    "row-remap-failure": "row-remap-unread",
    "row-remap-pending": "row-remap-unread",
    "page-retirement": "page-retirement-unread",
    "page-retirement-pending": "page-retirement-unread",
    "repair-pending": "repair-status-unread",
    "unrepairable-memory": "unrepairable-memory-unread",
    "inforom-corrupt": "inforom-unread",
    "mig-mode-pending": "mig-mode-unread",
    "pcie-link": "pcie-link-unread",
    "fabric-health": "fabric-unread",
    "nvlink-down": "nvlink-state-unread",
    "nvlink-errors": "nvlink-errors-unread",
    "nvlink-recovery": "nvlink-recovery-unread",
    "clock-slowdown": "clocks-unread",
    "memory-leftover": "memory-unread",
}
"""That a state could not be read had the state's own name; now it has that of the reading."""
