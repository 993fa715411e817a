"""What NVML said about this node at one moment, as plain values.

Why it exists: it is the only input of the inventory, so every later decision can be replayed from a
recorded snapshot. Must not know NVML: no handles, no codes. An optional field that a board or a
driver does not have is None; a required one is there, or the adapter has failed loudly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from driver.core.geometry import Geometry, Placement
from driver.core.ids import GpuUuid


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFacts:
    """`driver`: as the vendor spells it (`580.95.05`); `cuda`: (major, minor) that it supports."""

    driver: str
    cuda: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class PciAddress:
    """Where a GPU sits. `str()` is the kernel's spelling, `0000:3b:00.0`."""

    domain: int
    bus: int
    device: int
    function: int = 0

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.{self.function:x}"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ComputeFacts:
    """A compute instance: what a container opens. `uuid` is NVML's, `MIG-...`."""

    id: int
    uuid: str


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class InstanceFacts:
    """A GPU instance as it is on the hardware; without a compute instance it is half made.

    `profile_id` is NVML's id, as in `MigProfile.id`. Ids of instances are used again.
    """

    id: int
    profile_id: int
    placement: Placement
    compute: tuple[ComputeFacts, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MigState:
    """Whether the board can be partitioned, and whether it is switched on now or after a reset.

    `switchable`: the mode changes at once, without a reset (Hopper and later). `geometry` is None
    where NVML names no profile, and where it could not be asked: then `unread` says why.
    """

    capable: bool
    enabled: bool = False
    pending: bool = False
    switchable: bool = False
    geometry: Geometry | None = None
    instances: tuple[InstanceFacts, ...] = ()
    unread: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """One physical GPU. `index` and `minor` move over reboots: for people and paths, never names.

    `memory` is in bytes, None on boards that share the host's. `pcie_root` is the kernel's name of
    the root bus (`pci0000:16`).
    """

    uuid: GpuUuid
    index: int
    minor: int
    pci: PciAddress
    product: str
    memory: int | None
    mig: MigState
    brand: str | None = None
    architecture: str | None = None
    compute_capability: tuple[int, int] | None = None
    serial: str | None = None
    numa_node: int | None = None
    pcie_root: str | None = None
    addressing_mode: str | None = None
    nvlink_domain: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LostGpu:
    """On the bus, or in NVML's count, but without an answer. `where`: index or address."""

    where: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSnapshot:
    """`lost` GPUs are neither published nor forgotten: what is in use on them stays."""

    driver: DriverFacts
    gpus: tuple[GpuFacts, ...]
    lost: tuple[LostGpu, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether it tells all that the node has: nothing is lost, and nothing was left unread."""
        return not self.lost and not any(gpu.mig.unread for gpu in self.gpus)


def with_known_geometry(snapshot: NodeSnapshot, before: Mapping[GpuUuid, GpuFacts]) -> NodeSnapshot:
    """A board that can be partitioned, but whose geometry could not be read this time, is as it was
    before: one failed call must not withdraw its devices.
    """
    gpus = []
    for gpu in snapshot.gpus:
        known = before.get(gpu.uuid)
        if gpu.mig.capable and gpu.mig.geometry is None and known and known.mig.geometry:
            mig = replace(
                gpu.mig,
                geometry=known.mig.geometry,
                instances=known.mig.instances,
                unread="",
            )
            gpus.append(replace(gpu, mig=mig))
        else:
            gpus.append(gpu)
    return replace(snapshot, gpus=tuple(gpus))


def with_lost(snapshot: NodeSnapshot, before: Mapping[GpuUuid, GpuFacts]) -> NodeSnapshot:
    """A GPU that does not answer any more is as it was before: its devices must stay published,
    with what is held against them, and not vanish. Not where another GPU sits at its address now.
    """
    uuids = {gpu.uuid for gpu in snapshot.gpus}
    places = {gpu.pci for gpu in snapshot.gpus}
    gone = (g for uuid, g in before.items() if uuid not in uuids and g.pci not in places)
    return replace(snapshot, gpus=(*snapshot.gpus, *gone))
