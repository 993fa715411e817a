"""The GPUs of this node, as the plugin asks for them."""

from __future__ import annotations

from typing import Protocol

from driver.core.snapshot import NodeSnapshot, PciAddress


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
