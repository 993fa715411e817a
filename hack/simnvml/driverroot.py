"""Renders the files that a real driver would show, following a machine's state.

Why it exists: besides NVML, a driver reads the driver root (library, device nodes, /proc and /sys
trees): for CDI, capability minors, PCIe roots and the boot id. Call `render` again after a change;
what no longer holds is removed.

Must not know: the driver under test and the paths it will be given; everything is below `root`.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import Final

from hack.simcuda import build as simcuda
from hack.simnvml.build import LIBRARY, SMI, library_path
from hack.simnvml.caps import CONFIG, MONITOR, capability_files, mig_minors
from hack.simnvml.gpu import Gpu
from hack.simnvml.kit import Machine

LIBRARY_FOLDER: Final = "usr/lib/x86_64-linux-gnu"
MAJOR_GPU: Final = 195
MINOR_CONTROL: Final = 255
DRIVER_LINK: Final = "/sys/bus/pci/drivers/nvidia"
"""Only its last part is looked at, and it need not exist."""
GPU_CLASS: Final = 0x030200  # 3D controller
BRIDGE: Final = (0x10B5, 0x8747, 0x060400)  # vendor, device, class of a PCIe switch port


def render(machine: Machine, root: Path, *, nodes: bool, ahead: bool = True) -> None:
    """Makes `root` the driver root of `machine`.

    `nodes`: device nodes by mknod (root only), else empty plain files of the same names.
    `ahead`: MIG capability files for every instance that could exist, else for those that do.
    """
    root.mkdir(parents=True, exist_ok=True)
    _userland(machine, root)
    gpus = [gpu for gpu in machine.gpus if not gpu.get("off_bus")]
    caps = {"mig/config": CONFIG, "mig/monitor": MONITOR}
    for gpu in gpus:
        caps |= capability_files(gpu, ahead=ahead)
    wanted = _device_nodes(machine, gpus, caps)
    _prune(root / "dev", {name for name, _, _ in wanted})
    for name, major, minor in wanted:
        _node(root / "dev" / name, major, minor, real=nodes)
    _proc(machine, gpus, caps, root / "proc")
    _sys(gpus, root / "sys")


def _userland(machine: Machine, root: Path) -> None:
    built = library_path()
    folder = root / LIBRARY_FOLDER
    for soname, source in ((LIBRARY, built), (simcuda.LIBRARY, simcuda.library_path())):
        stem = soname.removesuffix(".1")
        name = f"{stem}.{machine.get('driver')}"
        for old in folder.glob(f"{stem}.*"):
            if old.name not in {name, soname}:
                old.unlink()
        _install(source, folder / name, 0o644)
        _link(folder / soname, name)
    _install(built.parent / SMI, root / "usr/bin" / SMI, 0o755)


def _device_nodes(
    machine: Machine, gpus: list[Gpu], caps: dict[str, int]
) -> list[tuple[str, int, int]]:
    uvm, major = int(machine.get("major_uvm")), int(machine.get("major_caps"))
    return [
        ("nvidiactl", MAJOR_GPU, MINOR_CONTROL),
        ("nvidia-uvm", uvm, 0),
        ("nvidia-uvm-tools", uvm, 1),
        *((f"nvidia{gpu.minor}", MAJOR_GPU, gpu.minor) for gpu in gpus),
        *((f"nvidia-caps/nvidia-cap{minor}", major, minor) for minor in caps.values()),
    ]


def _proc(machine: Machine, gpus: list[Gpu], caps: dict[str, int], proc: Path) -> None:
    driver = proc / "driver/nvidia"
    version = machine.get("driver")
    _text(
        driver / "version",
        f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build\n"
        "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n",
    )
    _prune(driver / "gpus", {f"{gpu.pci}/information" for gpu in gpus})
    for gpu in gpus:
        _text(driver / "gpus" / gpu.pci / "information", _information(gpu))
    _prune(driver / "capabilities", set(caps))
    for name, minor in caps.items():
        _text(
            driver / "capabilities" / name,
            f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n",
        )
    _text(proc / "driver/nvidia-caps/mig-minors", mig_minors())
    _text(
        proc / "devices",
        "Character devices:\n"
        f"{MAJOR_GPU} nvidia\n{MAJOR_GPU} nvidiactl\n"
        f"{machine.get('major_uvm')} nvidia-uvm\n{machine.get('major_caps')} nvidia-caps\n"
        "\nBlock devices:\n",
    )
    _text(proc / "sys/kernel/random/boot_id", f"{machine.get('boot_id')}\n")


def _information(gpu: Gpu) -> str:
    return (
        f"Model: \t\t {gpu.get('name')}\n"
        f"IRQ:   \t\t {100 + gpu.minor}\n"
        f"GPU UUID: \t {gpu.uuid}\n"
        f"Video BIOS: \t {gpu.get('vbios')}\n"
        "Bus Type: \t PCIe\n"
        "DMA Size: \t 52 bits\n"
        "DMA Mask: \t 0xfffffffffffff\n"
        f"Bus Location: \t {gpu.pci}\n"
        f"Device Minor: \t {gpu.minor}\n"
        "GPU Firmware: \t n/a\n"
        "GPU Excluded:\t No\n"
    )


# -- sysfs: devices hang below their root port, `bus/pci/devices` only links there


def _sys(gpus: list[Gpu], sys: Path) -> None:
    links, devices = sys / "bus/pci/devices", sys / "devices"
    linked: set[str] = set()
    present: set[str] = set()
    for gpu in gpus:
        path = _pci_path(gpu)
        vendor = gpu.number("device_id") & 0xFFFF
        device = gpu.number("device_id") >> 16
        for depth in range(2, len(path) + 1):
            below = "/".join(path[:depth])
            kind = (vendor, device, GPU_CLASS) if depth == len(path) else BRIDGE
            present |= {f"{below}/{name}" for name in _pci_function(devices / below, gpu, *kind)}
            _link(links / path[depth - 1], f"../../../devices/{below}")
            linked.add(path[depth - 1])
    _prune(links, linked)
    _prune(devices, present)


def _pci_path(gpu: Gpu) -> list[str]:
    """Root complex, root port, perhaps a switch port, the GPU."""
    domain, root = gpu.number("domain"), gpu.number("pci_root")
    path = [f"pci{domain:04x}:{root:02x}", f"{domain:04x}:{root:02x}:01.0"]
    if switch := gpu.number("pci_switch"):
        path.append(f"{domain:04x}:{switch:02x}:{gpu.number('bus') & 0x1F:02x}.0")
    return [*path, gpu.pci]


def _pci_function(where: Path, gpu: Gpu, vendor: int, device: int, kind: int) -> list[str]:
    numa = gpu.number("numa")
    files = {
        "vendor": f"0x{vendor:04x}",
        "device": f"0x{device:04x}",
        "class": f"0x{kind:06x}",
        "numa_node": str(-1 if numa == 0xFFFFFFFF else numa),
    }
    for name, text in files.items():
        _text(where / name, f"{text}\n")
    # What has fallen off the bus answers every read with ones.
    start = vendor | device << 16
    _bytes(where / "config", b"\xff" * 64 if gpu.get("lost") else start.to_bytes(64, "little"))
    if kind == GPU_CLASS:
        _link(where / "driver", DRIVER_LINK)
        return [*files, "config", "driver"]
    return [*files, "config"]


# -- files


def _text(path: Path, text: str) -> None:
    _bytes(path, text.encode())


def _bytes(path: Path, data: bytes) -> None:
    if path.exists() and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_bytes(data)
    fresh.replace(path)  # a reader sees the old content or the new


def _install(source: Path, target: Path, mode: int) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f".{target.name}.new")
    shutil.copyfile(source, fresh)
    fresh.chmod(mode)
    fresh.replace(target)


def _link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() and str(path.readlink()) == target:
        return
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(path)


def _node(path: Path, major: int, minor: int, *, real: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        status = path.stat()
        kind = stat.S_ISCHR(status.st_mode) if real else stat.S_ISREG(status.st_mode)
        if kind and (not real or status.st_rdev == os.makedev(major, minor)):
            return
        path.unlink()
    if real:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(major, minor))
        path.chmod(0o666)  # mknod obeys the umask
    else:
        path.touch()


def _prune(folder: Path, wanted: set[str]) -> None:
    """Removes files and links below `folder` that are not wanted, and folders left empty."""
    if not folder.exists():
        return
    for path in sorted(folder.rglob("*"), reverse=True):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif name not in wanted:
            path.unlink()
