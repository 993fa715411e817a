"""A machine with a driver root, and the adapter on it: what the plugin has on a node."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from driver.core.snapshot import GpuFacts, NodeSnapshot, PciAddress
from driver.nvml import NvmlLibrary, NvmlPartitions
from driver.state import sysfs
from hack.simnvml import driverroot
from hack.simnvml.build import library_path
from hack.simnvml.kit import Machine
from hack.simnvml.testing import make_machine

__all__ = ["make_machine"]

LIBRARY = Path(driverroot.LIBRARY_FOLDER) / "libnvidia-ml.so.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The real reading of the PCI tree, where it is rendered."""

    sys: Path

    def pcie_root(self, address: PciAddress) -> str | None:
        return sysfs.pcie_root(self.sys, address)

    def numa_node(self, address: PciAddress) -> int | None:
        return sysfs.numa_node(self.sys, address)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    machine: Machine
    root: Path
    library: NvmlLibrary
    opened: list[NvmlLibrary] = field(default_factory=list)

    @property
    def partitions(self) -> NvmlPartitions:
        return NvmlPartitions(self.library)

    def snapshot(self) -> NodeSnapshot:
        return self.library.snapshot()

    def gpu(self, index: int = 0) -> GpuFacts:
        return self.snapshot().gpus[index]

    def symbols(self) -> list[str]:
        """The NVML functions that were called last, oldest first."""
        return [call.symbol for call in self.machine.last_calls()]

    def mapped(self) -> set[int]:
        """Inodes of the driver root's files that this process has in its memory."""
        lines = Path("/proc/self/maps").read_text().splitlines()
        return {int(line.split()[4]) for line in lines if f"{self.root}/" in line}

    def library_file(self) -> Path:
        """The file behind the name that programs ask for."""
        return (self.root / LIBRARY).resolve()


def install_library(root: Path, version: str) -> None:
    """The library alone, as a package of the driver leaves it."""
    folder = (root / LIBRARY).parent
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    shutil.copy(library_path(), folder / f"libnvidia-ml.so.{version}")
    (root / LIBRARY).symlink_to(f"libnvidia-ml.so.{version}")


@pytest.fixture
def make_node(make_machine, tmp_path) -> Iterator[Callable[..., Node]]:
    """`rendered`: with the whole driver root, /sys included; else the library alone."""
    made: list[Node] = []

    def make(preset: str = "h100x2", *, rendered: bool = False, **options) -> Node:
        machine = make_machine(preset, **options)
        root = tmp_path / f"root-{len(made)}"
        if rendered:
            driverroot.render(machine, root, nodes=False, ahead=False)
        else:
            install_library(root, str(machine.get("driver")))
        library = NvmlLibrary(driver_root=root, topology=Topology(sys=root / "sys"))
        made.append(Node(machine=machine, root=root, library=library))
        return made[-1]

    yield make
    for node in made:
        node.machine.clear_rules()
        node.library.close()
