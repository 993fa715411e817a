"""What the kernel says about this boot and the PCI bus.

Why it exists: NVML does not know the root bus, counts only GPUs that still answer, and cannot tell
that the machine was booted anew. The roots of /proc and /sys are parameters: a simulated node has
its own.

Must not know NVML.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from driver.core.errors import StateError
from driver.core.snapshot import PciAddress
from driver.state.failures import state_error

_NVIDIA: Final = "0x10de"
_DISPLAY: Final = "0x03"
"""The base class of VGA (0x0300..) and 3D controllers (0x0302..)."""
_ADDRESS: Final = re.compile(
    r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.ASCII | re.IGNORECASE
)
_ROOT_BUS: Final = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}", re.ASCII)


def boot_id(proc_root: Path) -> str:
    """A new UUID at each boot of the kernel."""
    path = proc_root / "sys/kernel/random/boot_id"
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise state_error("cannot read the boot id", path, error) from error
    if not text:
        raise StateError(f"the boot id in {path} is empty; proc_root must be a mounted /proc")
    return text


def pci_gpus(sys_root: Path) -> tuple[PciAddress, ...]:
    """NVIDIA GPUs on the bus that NVML should count, in order of address.

    Left out: virtual functions, and GPUs that another kernel driver (vfio-pci) has taken.
    """
    folder = sys_root / "bus/pci/devices"
    try:
        devices = sorted(folder.iterdir())
    except OSError as error:
        raise state_error("cannot list PCI devices in", folder, error) from error
    found = (parse_address(d.name) for d in devices if _is_ours(d))
    return tuple(sorted(a for a in found if a is not None))


def _is_ours(device: Path) -> bool:
    if _value(device / "vendor") != _NVIDIA or not _value(device / "class").startswith(_DISPLAY):
        return False
    if (device / "physfn").exists():
        return False
    driver = device / "driver"
    return not driver.is_symlink() or driver.readlink().name == "nvidia"


def parse_address(text: str) -> PciAddress | None:
    """The kernel's spelling, `0000:3b:00.0`; None for anything else."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        return None
    domain, bus, device, function = (int(part, 16) for part in match.groups())
    return PciAddress(domain=domain, bus=bus, device=device, function=function)


def pcie_root(sys_root: Path, address: PciAddress) -> str | None:
    """`pci<domain>:<bus>` as Kubernetes defines it; None where the bus does not say it that way.

    The first element after `devices/` of the device's link; the last must be the device itself.
    """
    try:
        parts = (sys_root / "bus/pci/devices" / str(address)).readlink().parts
    except OSError:
        return None  # no sysfs, or not a link: the attribute is optional
    if "devices" not in parts or parts[-1] != str(address):
        return None
    root = parts[parts.index("devices") + 1]
    return root if _ROOT_BUS.fullmatch(root) else None


def numa_node(sys_root: Path, address: PciAddress) -> int | None:
    """None where the machine has no NUMA nodes; the kernel says -1 there."""
    text = _value(sys_root / "bus/pci/devices" / str(address) / "numa_node")
    return int(text) if text.isdecimal() else None


def _value(path: Path) -> str:
    """Empty where the file is missing: a device may vanish between listing and reading."""
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
