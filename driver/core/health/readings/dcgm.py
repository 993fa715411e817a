"""What dcgm-exporter shows of each GPU, weighed.

Why it exists: where DCGM runs anyway, it is a second witness. It is only that: its last Xid stays
on show until DCGM is restarted, long after a reset, so it is never a fault; and that DCGM does not
answer, or does not collect what we want, says nothing about a GPU.

Must not know HTTP, the text format.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from driver.core.health.kernel.verdict_recovery import recovery_faults
from driver.core.health.signals import NODE, CannotTell, Fault, Need, Scope, Signal, Source, Well
from driver.core.ids import GpuUuid

DCGM: Final = "dcgm"
RECOVERY: Final = ("DCGM_FI_DEV_GPU_RECOVERY_ACTION", "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION")
"""Newest name first."""
BLANK: Final = 9.2e18
"""From here on a value says that there is none: not supported, not found, no permission."""
WANTED: Final = ("DCGM_FI_DEV_ROW_REMAP_FAILURE",)
"""In the default set of dcgm-exporter; without it the exporter tells too little to be a witness."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """More than `above` is a fault."""

    name: str
    need: Need
    text: str
    above: float = 0.0


_SRAM: Final = Meaning(
    name="sram-threshold",
    need=Need.OPERATOR,
    text="more uncorrectable SRAM errors than a good board has; run the field diagnostic",
)
MEANINGS: Final[Mapping[str, Meaning]] = {
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": Meaning(
        name="row-remap-failure",
        need=Need.OPERATOR,
        text="a memory row could not be replaced; the board is to be exchanged",
    ),
    "DCGM_FI_DEV_ROW_REMAP_PENDING": Meaning(
        name="row-remap-pending",
        need=Need.WATCH,
        text="a memory row is replaced at the next reset of the GPU",
    ),
    "DCGM_FI_DEV_RETIRED_PENDING": Meaning(
        name="page-retirement-pending",
        need=Need.WATCH,
        text="a memory page is retired at the next reset of the GPU",
    ),
    "DCGM_FI_DEV_SRAM_EXCEEDED": _SRAM,
    "DCGM_FI_DEV_THRESHOLD_SRM": _SRAM,  # before DCGM 4.6
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One line: `gpu` by its UUID."""

    metric: str
    gpu: GpuUuid
    value: float


def weigh_dcgm(
    samples: Iterable[Sample], ours: Iterable[GpuUuid], *, branch: int | None, at: float
) -> list[Signal]:
    """Of our GPUs; an exporter may show others, or none of ours, which is not health."""
    known = frozenset(ours)
    shown = [each for each in samples if each.gpu in known and 0 <= each.value < BLANK]
    lacking = [name for name in WANTED if not any(each.metric == name for each in shown)]
    if known and lacking:
        names = ", ".join(lacking)
        return [_unavailable(f"it shows no {names} of a GPU of this node", at)]
    signals: list[Signal] = [Well(source=Source.DCGM, scope=NODE, name=DCGM, at=at)]
    for each in shown:
        if each.metric in RECOVERY:
            signals.append(
                recovery_faults(int(each.value), branch, gpu=each.gpu, at=at, source=Source.DCGM)
            )
        elif each.metric in MEANINGS:
            signals.append(_judged(each, MEANINGS[each.metric], at))
    return signals


def weigh_dcgm_failure(text: str, at: float) -> list[Signal]:
    return [_unavailable(text, at)]


def _unavailable(text: str, at: float) -> CannotTell:
    return CannotTell(source=Source.DCGM, scope=NODE, name=DCGM, at=at, detail=f"DCGM: {text}")


def _judged(sample: Sample, meaning: Meaning, at: float) -> Signal:
    scope = Scope(gpu=sample.gpu)
    if sample.value <= meaning.above:
        return Well(source=Source.DCGM, scope=scope, name=meaning.name, at=at)
    return Fault(
        source=Source.DCGM,
        scope=scope,
        name=meaning.name,
        need=meaning.need,
        at=at,
        detail=meaning.text,
    )
