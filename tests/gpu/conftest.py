"""The GPUs of this machine, where it has some; and nothing but reading."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from driver.core.errors import LibraryMissing
from driver.core.snapshot import NodeSnapshot, PciAddress
from driver.nvml import NvmlLibrary
from driver.nvml.library import find_library
from driver.state import sysfs
from hack.simnvml.testing import make_machine
from tests.gpu.readonly import read_only

__all__ = ["make_machine"]

SYS = Path("/sys")
ROOT_VARIABLE = "GPU_DRIVER_ROOT"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTopology:
    def pcie_root(self, address: PciAddress) -> str | None:
        return sysfs.pcie_root(SYS, address)

    def numa_node(self, address: PciAddress) -> int | None:
        return sysfs.numa_node(SYS, address)


@dataclass(frozen=True, slots=True, kw_only=True)
class RealNode:
    """`root`: the driver root, `/` unless GPU_DRIVER_ROOT names another one."""

    root: Path
    path: Path
    library: NvmlLibrary
    snapshot: NodeSnapshot


@pytest.fixture
def real() -> Iterator[RealNode]:
    root = Path(os.environ.get(ROOT_VARIABLE, "/"))
    control = [root / "dev/nvidiactl", Path("/dev/nvidiactl")]
    if not any(each.exists() for each in control):
        pytest.skip("no NVIDIA GPU here: there is no /dev/nvidiactl")
    try:
        path = find_library(root)
    except LibraryMissing as error:
        pytest.skip(f"no NVML here (set {ROOT_VARIABLE}?): {error}")
    library = NvmlLibrary(driver_root=root, topology=KernelTopology())
    # From here on, what does not work is a failure.
    with read_only():
        yield RealNode(root=root, path=path, library=library, snapshot=library.snapshot())
        library.close()
