"""What one look at the GPUs through NVML found: plain values, before anybody judges them.

Why it exists: the adapter only reads and the judgement only weighs; between them every reading is
in one of four states. `None`: this board or driver does not have it, or not now, which says
nothing. `Failed`: it is there and could not be read, which is not health. `NOT_ASKED`: this look
left it out, so all is as it was. Else the value.

Must not know NVML: no handles, no codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final, TypeAlias, TypeVar

from driver.core.ids import GpuUuid
from driver.core.snapshot import PciAddress

T = TypeVar("T")


class Trouble(StrEnum):
    """What an error means on the host. In a container it may mean something else."""

    LOST = "lost"
    RESET_REQUIRED = "reset-required"
    MISSING = "missing"
    POWER = "power"
    """The auxiliary power is not connected."""
    INTERRUPTS = "interrupts"
    DRIVER = "driver"
    """Library or kernel driver missing, or of different versions: it concerns all GPUs."""
    RELEASED = "released"
    """We let go of NVML ourselves, for somebody who resets a GPU."""
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    trouble: Trouble
    text: str


class NotAsked(Enum):
    NOT_ASKED = "not asked"


NOT_ASKED: Final = NotAsked.NOT_ASKED

Reading: TypeAlias = T | Failed | NotAsked | None


def value(reading: Reading[T]) -> T | None:
    """What was read, if anything was."""
    return None if isinstance(reading, Failed | NotAsked) else reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Memory rows that were replaced by spare ones, and whether that needs a reset or failed."""

    uncorrectable: int
    pending: bool
    failure: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """Boards before Ampere take whole pages away instead."""

    double_bit: int
    pending: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Repairs:
    channel: bool
    tpc: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """Of GPUs behind NVLink switches. `notes`: what the driver holds against it."""

    ready: bool
    status: int = 0
    unhealthy: bool = False
    degraded: bool = False
    misconfigured: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PcieLink:
    width: int
    max_width: int
    generation: int
    max_generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """`used` is without what the driver reserves. `processes` that NVML shows to us."""

    used: int
    total: int
    processes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """Why the clocks are where they are: `idle`, or held back by the hardware."""

    idle: bool
    held_back: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModePair:
    """MIG mode now, and after the next reset."""

    current: bool
    pending: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReadings:
    """One look at one GPU. Of links by number: `links` that the board has, whether they are active;
    `link_errors` since the driver was loaded; `link_failures`, recoveries that failed (NVLink 5).
    `load`: percent; `held`: a claim has it.
    """

    gpu: GpuUuid
    at: float
    recovery: Reading[int] = None
    uncorrected: Reading[int] = None
    sram_threshold: Reading[bool] = None
    rows: Reading[Rows] = None
    pages: Reading[Pages] = None
    repairs: Reading[Repairs] = None
    unrepairable: Reading[bool] = None
    inforom_well: Reading[bool] = None
    links: Reading[Mapping[int, bool]] = None
    link_errors: Reading[Mapping[int, int]] = None
    link_failures: Reading[Mapping[int, int]] = None
    fabric: Reading[Fabric] = None
    clocks: Reading[Clocks] = None
    pcie: Reading[PcieLink] = None
    load: Reading[int] = None
    mig: Reading[ModePair] = None
    memory: Reading[MemoryUse] = None
    held: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReadings:
    """One look at the node. `gpus`: each one that is or was there, with its readings or why there
    are none; `places`: where each was last seen; `uncounted`: on the bus, but not in NVML.
    """

    at: float
    branch: int
    gpus: Mapping[GpuUuid, GpuReadings | Failed] = field(default_factory=dict)
    places: Mapping[GpuUuid, PciAddress] = field(default_factory=dict)
    uncounted: tuple[PciAddress, ...] = ()
