"""What each Xid and SXid means for a device, as a value.

Why it exists: the meaning of a code is knowledge that changes with drivers and is argued about, so
it is data with a source and a date, not branches in code. Must not know where the data comes from,
nor messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from driver.core.health.kernel.nvlink_table import Nvlink5Table
from driver.core.health.signals import Need


class XidClass(StrEnum):
    NEVER = "never"
    """For information; says nothing of the device."""
    APPLICATION = "application"
    """The program's own fault; it has died, the device is well."""
    PROBE = "probe"
    WATCH = "watch"
    RESET = "reset"
    REBOOT = "reboot"
    OPERATOR = "operator"
    DECODE = "decode"
    """The text decides: registers of a link."""
    FOLLOW = "follow"
    """The message is itself the driver's judgement (154)."""
    ENVIRONMENT = "environment"
    """Of virtualisation or confidential computing; a probe decides about the device."""


NEEDS: Final[Mapping[XidClass, Need]] = {
    XidClass.NEVER: Need.NOTHING,
    XidClass.APPLICATION: Need.NOTHING,
    XidClass.PROBE: Need.PROBE,
    XidClass.WATCH: Need.WATCH,
    XidClass.RESET: Need.RESET,
    XidClass.REBOOT: Need.REBOOT,
    XidClass.OPERATOR: Need.OPERATOR,
    XidClass.DECODE: Need.PROBE,
    XidClass.FOLLOW: Need.PROBE,
    XidClass.ENVIRONMENT: Need.PROBE,
}
"""What stands until more is known; for the text-driven classes, what stands without that text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class XidRow:
    """`arch`: A (A100), H, B, G (GB200). `since`: the driver branch from which this code drives
    the GPU's recovery action, None where it is not known to. `whole`: of the whole GPU even if
    the message names an instance. `joins`: the code whose evidence this one adds to. `ends`: the
    code whose evidence this one takes back.
    """

    code: int
    mnemonic: str
    meaning: str
    cls: XidClass
    arch: str = ""
    since: int | None = None
    whole: bool = False
    joins: int | None = None
    ends: int | None = None
    note: str = ""

    @property
    def latch(self) -> bool:
        """Whether it stands until something has put it right, or ends with its cause."""
        return self.cls in {XidClass.RESET, XidClass.REBOOT, XidClass.OPERATOR}


class SxidClass(StrEnum):
    NOTICE = "notice"
    NONFATAL = "nonfatal"
    POTENTIAL = "potential"
    """Fatal where the message says so."""
    FATAL = "fatal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """`source` and `date` are shown wherever a judgement is explained."""

    source: str
    date: str
    xids: Mapping[int, XidRow]
    sxids: Mapping[int, SxidClass]
    nvlink5: Nvlink5Table
