"""What the driver's lines without an Xid, and a switch's SXids, need: tables only.

Why it exists: these have no catalogue row of NVIDIA's; the classes are ours. Must not know
addresses and scopes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from driver.core.health.kernel.catalogue import SxidClass
from driver.core.health.kernel.lines import Trouble
from driver.core.health.signals import Need

LINES: Final[Mapping[Trouble, Need]] = {
    Trouble.GSP_ERRORS: Need.PROBE,
    Trouble.GSP_TIMEOUT: Need.PROBE,
    Trouble.INIT_FAILED: Need.PROBE,
    Trouble.BAR_FIREWALL: Need.PROBE,
    Trouble.AER_FATAL: Need.PROBE,
    Trouble.PROBE_FAILED: Need.WATCH,
    Trouble.BAD_REGION: Need.WATCH,
    Trouble.REMOVED_IN_USE: Need.WATCH,
    Trouble.FOREIGN_DRIVER: Need.WATCH,
    Trouble.UNSUPPORTED: Need.WATCH,
    Trouble.NVLINK_DETECT: Need.WATCH,
    Trouble.NVLINK_TRAINING: Need.WATCH,
    Trouble.AER_NONFATAL: Need.WATCH,
    # Of a program, or for information: a container with other libraries is enough for the first.
    Trouble.API_MISMATCH: Need.NOTHING,
    Trouble.CRASH_DUMP: Need.NOTHING,
    Trouble.AER_CORRECTED: Need.NOTHING,
    Trouble.NCCL_SEGFAULT: Need.NOTHING,
}

OF_ANY_DEVICE: Final = frozenset({Trouble.AER_CORRECTED, Trouble.AER_NONFATAL, Trouble.AER_FATAL})
"""Lines that the kernel writes about network cards and disks too."""

_SXIDS: Final[Mapping[SxidClass | None, tuple[Need, Need]]] = {
    SxidClass.NOTICE: (Need.NOTHING, Need.PROBE),
    SxidClass.NONFATAL: (Need.NOTHING, Need.PROBE),
    SxidClass.POTENTIAL: (Need.WATCH, Need.REBOOT),
    SxidClass.FATAL: (Need.REBOOT, Need.REBOOT),
    None: (Need.WATCH, Need.REBOOT),
}


def sxid_need(cls: SxidClass | None, *, fatal: bool) -> Need:
    """`cls` None: not in the catalogue."""
    return _SXIDS[cls][fatal]
