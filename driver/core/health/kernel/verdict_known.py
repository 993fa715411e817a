"""What a judgement starts from, and what it gives.

Why it exists: the judges of Xids and of other lines share it. Must not know any event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from driver.core.health.kernel.catalogue import Catalogue
from driver.core.health.kernel.verdict_recovery import HAS_ACTION_FROM
from driver.core.health.signals import NODE, Fault, Need, Signal, Source
from driver.core.ids import GpuUuid
from driver.core.snapshot import PciAddress

REASK_SECONDS: Final = 5.0
"""How long the recovery action is read again after a sign; the driver took 0.3 s where seen."""

TEXT_SHOWN: Final = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """`branch` None: not known. `gpus`: from NVML, kept when it fails, and from the log itself;
    addresses of function 0. `minors`: of /dev/nvidiaN. `actions`: recovery actions that could be
    read, as numbers. `settled`: they were read after the time for asking again.
    """

    catalogue: Catalogue
    branch: int | None = None
    gpus: Mapping[PciAddress, GpuUuid] = field(default_factory=dict)
    minors: Mapping[int, GpuUuid] = field(default_factory=dict)
    actions: Mapping[GpuUuid, int] = field(default_factory=dict)
    settled: bool = False

    def gpu_at(self, address: PciAddress | None) -> GpuUuid | None:
        return None if address is None else self.gpus.get(replace(address, function=0))

    @property
    def has_action(self) -> bool:
        """Whether the driver may have a recovery action at all."""
        return self.branch is None or self.branch >= HAS_ACTION_FROM


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """`ask_again`: the GPU whose recovery action is to be read again for `REASK_SECONDS`."""

    signals: tuple[Signal, ...] = ()
    ask_again: GpuUuid | None = None


NO_JUDGEMENT: Final = Judgement()


def on_node(name: str, need: Need, *, at: float, source: Source, detail: str) -> Fault:
    return Fault(source=source, scope=NODE, name=name, need=need, at=at, detail=detail)


def unplaced(need: Need) -> Need:
    """For a fault of a GPU that we do not have: it is shown, and takes no other GPU away."""
    return Need.NOTHING if need is Need.NOTHING else Need.WATCH
