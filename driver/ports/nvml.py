"""The GPUs of this node, as the plugin asks for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from driver.core.geometry import MigProfile, Placement
from driver.core.ids import GpuUuid
from driver.core.ledger import Made
from driver.core.snapshot import ComputeFacts, InstanceFacts, NodeSnapshot, PciAddress


class PciTopology(Protocol):
    """What the kernel's PCI tree says of a GPU; None where it says nothing."""

    def pcie_root(self, address: PciAddress) -> str | None:
        """The root bus, `pci0000:16`."""
        ...

    def numa_node(self, address: PciAddress) -> int | None: ...


class GpuLibrary(Protocol):
    """NVML behind one lock-free facade; every method may raise NvmlError."""

    def snapshot(self) -> NodeSnapshot:
        """Everything about every GPU. Opens the library if it is not open."""
        ...

    def close(self) -> None:
        """Let go of every handle, so that a reset or a driver reload by others can go on."""
        ...

    def close_idle(self, seconds: float) -> float:
        """The same, if nothing was asked for so long; else seconds until that may be so."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MigMode:
    """`pending` differs from `enabled` where a reset is awaited."""

    enabled: bool
    pending: bool


class MigLibrary(Protocol):
    """What changes a GPU. Each call concerns one GPU and may take hundreds of milliseconds; calls
    for different GPUs run side by side. Errors are NvmlError of the kind that the code says.
    """

    def mode(self, gpu: GpuUuid) -> MigMode: ...

    def set_mode(self, gpu: GpuUuid, *, on: bool) -> None:
        """Returns when the mode is active. InUse where somebody holds the GPU, ResetRequired where
        only a reset would make it active.
        """
        ...

    def instances(self, gpu: GpuUuid) -> tuple[InstanceFacts, ...]:
        """All GPU instances, also those without a compute instance. Empty while MIG is off."""
        ...

    def create(self, gpu: GpuUuid, profile: MigProfile, placement: Placement) -> int:
        """Make a GPU instance exactly there; its id. After an error there is none, unless it is
        InstanceLeft.
        """
        ...

    def create_compute(self, gpu: GpuUuid, instance: int) -> ComputeFacts:
        """Make the compute instance that the driver marks as default: all of the GPU instance."""
        ...

    def destroy_compute(self, gpu: GpuUuid, instance: int, compute: int) -> None:
        """InUse while a process has it open; NotFound where it is not there."""
        ...

    def destroy(self, gpu: GpuUuid, instance: int) -> None:
        """InUse while it has a compute instance; NotFound where it is not there."""
        ...

    def processes(self, gpu: GpuUuid, made: Made | None) -> int:
        """How many processes compute on the GPU, or on one partition of it. NotSupported where the
        driver cannot tell, NotFound where the partition is not there.
        """
        ...
