"""Whether an operator may say that a GPU was reset.

Why it exists: most faults that need a reset leave no state that a reset is seen to end, least of
all with drivers that give no advice. So who did it says so. It is the word of a human against a
fault, so it counts only for what was seen before the GPU could last have been reset: while a plugin
holds NVML no GPU can be. A probe has to pass as well, and what needs a reboot or an operator stays.

Must not know how it is transported, or how NVML is let go of.
"""

from __future__ import annotations

from collections.abc import Collection

from driver.core.errors import TesseraError
from driver.core.health.explain import moment
from driver.core.health.items import Evidence, Identity
from driver.core.health.proof import Step, next_step
from driver.core.health.signals import ResetSeen


class NotReset(TesseraError):
    """Says why, and what to do instead."""


def check(evidence: Evidence, told: Collection[ResetSeen], identity: Identity) -> None:
    """NotReset where one of them cannot be so: then none of them counts."""
    for each in told:
        reason = refusal(evidence, each, identity)
        if reason is not None:
            raise NotReset(f"{each.gpu}: {reason}")


def refusal(evidence: Evidence, told: ResetSeen, identity: Identity) -> str | None:
    if told.gpu not in identity.serials:
        return "it is not there; `tessera status` shows the GPUs of this node"
    if not told.by.strip():
        return "say who has reset it"
    later = [
        i
        for i in evidence.items.values()
        if i.hard and i.scope.gpu == told.gpu and i.last >= told.at
        if next_step(i, evidence.boot_id) is Step.RESET
    ]
    if not later:
        return None
    newest = max(later, key=lambda item: item.last)
    return (
        f"{newest.name} was seen {moment(newest.last)}, and since {moment(told.at)} this plugin has"
        " held the GPU, so it cannot have been reset; open a window (tessera release), reset it,"
        " and say so again"
    )
