"""The GPU's own advice: the recovery action that the driver computes since R565.

Why it exists: the number comes by polling, by an event and in a log line, and must mean the same
each time. It is decoded by the driver's branch, not by the constants of a binding: 5 was a bus
reset up to R590, and is "recover IMEX domain" from R595 on, which concerns no GPU of this node.

Must not know who read it.
"""

from __future__ import annotations

from typing import Final

from driver.core.health.signals import Need

NO_ACTION: Final = 0
_IMEX: Final = 5
_IMEX_SINCE: Final = 595
_KNOWN: Final = {
    NO_ACTION: (Need.NOTHING, "none"),
    1: (Need.RESET, "reset the GPU"),
    2: (Need.REBOOT, "reboot the node"),
    3: (Need.WATCH, "drain what talks to other GPUs"),
    4: (Need.RESET, "drain and reset the GPU"),
    6: (Need.RESET, "reset the bus"),
    7: (Need.REBOOT, "reset the system"),
}


def recovery_need(action: int, branch: int) -> tuple[Need, str]:
    """What it asks for, and in words. A number that nobody knows asks for a reset."""
    if action == _IMEX:
        if branch >= _IMEX_SINCE:
            return Need.WATCH, "the driver asks to recover the IMEX domain"
        return Need.RESET, "the driver asks to reset the bus"
    need, text = _KNOWN.get(action, (Need.RESET, f"something unknown, {action}"))
    return need, f"the driver asks to {text}" if need is not Need.NOTHING else "nothing to do"
