"""The recovery action that the driver computes for a GPU: what a number means, what it demands.

Why it exists: since R565 the driver itself says what a GPU needs, which is better than any list of
codes; but one of its numbers has two meanings, and new ones appear. Must not know how it is read.

Traps: the value is refreshed by a queued work item, so that a reader who asks right after an error
may still see "none"; the first value after initialisation raises no event; 5 is "bus reset" before
R595 and "recover the IMEX domain" from there, whatever the installed binding calls it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from driver.core.health.items import RECOVERY
from driver.core.health.signals import Fault, Need, Scope, Source, Well
from driver.core.ids import GpuUuid

HAS_ACTION_FROM: Final = 565
_IMEX_FROM: Final = 595
_AMBIGUOUS: Final = 5


class RecoveryAction(StrEnum):
    NONE = "none"
    RESET = "reset"
    REBOOT = "reboot"
    DRAIN_P2P = "drain-p2p"
    DRAIN_AND_RESET = "drain-and-reset"
    IMEX = "recover-imex-domain"
    BUS_RESET = "bus-reset"
    SYSTEM_REBOOT = "system-reboot"
    UNKNOWN = "unknown"


NEEDS: Final[Mapping[RecoveryAction, Need]] = {
    RecoveryAction.NONE: Need.NOTHING,
    RecoveryAction.RESET: Need.RESET,
    RecoveryAction.REBOOT: Need.REBOOT,
    RecoveryAction.DRAIN_P2P: Need.WATCH,
    RecoveryAction.DRAIN_AND_RESET: Need.RESET,
    RecoveryAction.IMEX: Need.WATCH,
    RecoveryAction.BUS_RESET: Need.RESET,
    RecoveryAction.SYSTEM_REBOOT: Need.REBOOT,
    RecoveryAction.UNKNOWN: Need.RESET,
}

_NUMBERS: Final[Mapping[int, RecoveryAction]] = {
    0: RecoveryAction.NONE,
    1: RecoveryAction.RESET,
    2: RecoveryAction.REBOOT,
    3: RecoveryAction.DRAIN_P2P,
    4: RecoveryAction.DRAIN_AND_RESET,
    6: RecoveryAction.BUS_RESET,
    7: RecoveryAction.SYSTEM_REBOOT,
}
_NAMES: Final[Mapping[str, RecoveryAction]] = {
    "None": RecoveryAction.NONE,
    "GPU Reset Required": RecoveryAction.RESET,
    "Node Reboot Required": RecoveryAction.REBOOT,
    "Drain P2P": RecoveryAction.DRAIN_P2P,
    "Drain and Reset": RecoveryAction.DRAIN_AND_RESET,
    "Recover IMEX Domain": RecoveryAction.IMEX,
}


def branch_of(driver: str) -> int | None:
    """`580.95.05` -> 580; None where that is no version."""
    head = driver.split(".", 1)[0]
    return int(head) if head.isdecimal() and len(head) <= 4 else None  # noqa: PLR2004 - digits


def recovery_action(value: int, branch: int | None, name: str = "") -> RecoveryAction:
    """`name`: as Xid 154 prints it; it decides only where the number alone does not."""
    if value in _NUMBERS:
        return _NUMBERS[value]
    if name in _NAMES:
        return _NAMES[name]
    if value == _AMBIGUOUS and branch is not None:
        return RecoveryAction.IMEX if branch >= _IMEX_FROM else RecoveryAction.BUS_RESET
    return RecoveryAction.UNKNOWN


def recovery_faults(
    value: int,
    branch: int | None,
    *,
    gpu: GpuUuid,
    at: float,
    source: Source = Source.POLL,
    name: str = "",
) -> Fault | Well:
    """Always of the whole GPU. "None" is positive evidence that nothing is asked for."""
    action = recovery_action(value, branch, name)
    scope = Scope(gpu=gpu)
    if action is RecoveryAction.NONE:
        return Well(source=source, scope=scope, name=RECOVERY, at=at)
    detail = f"the driver asks for: {action} ({value})"
    return Fault(
        source=source, scope=scope, name=RECOVERY, need=NEEDS[action], at=at, detail=detail
    )
