"""What the plugin knows of its node at one moment, for the commands that ask.

Must not know what is shown of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from driver.core.expressible import Taints
from driver.core.health.items import Evidence
from driver.core.health.judge import Judgements
from driver.core.ids import ClaimUID
from driver.core.inventory import Inventory
from driver.core.ledger import Entry
from driver.core.live import Foreign
from driver.plugin.node import Identity
from driver.state.kmsg import Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """An open release window. `held`: NVML is open all the same."""

    seconds_left: float
    held: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """`problem`: why the hardware cannot be read now. `unsaved`: why evidence is not on disk.
    `kernel`: what was read of the kernel's log; None: it is not read. `foreign`: GPU instances that
    no entry explains. `taints`: of our devices, as they were last wanted; none while another leads.
    """

    identity: Identity
    version: str
    leads: bool
    inventory: Inventory | None
    problem: str
    judgements: Judgements
    evidence: Evidence
    unsaved: str
    entries: Mapping[ClaimUID, Entry]
    release: Release | None
    kernel: Counts | None
    foreign: tuple[Foreign, ...]
    taints: Taints
