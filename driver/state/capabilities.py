"""The two device nodes that open a MIG partition: of its GPU instance and its compute instance.

Why it exists: in MIG mode the GPU's own node is not enough; the kernel module lets a process use a
partition only if it can open the partition's two capability nodes. Their numbers are in /proc, and
the container runtime makes the nodes from them: the host need not have them.

Must not know claims, NVML.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from driver.core.cdi import DeviceNode
from driver.core.errors import StateError
from driver.state.failures import state_error

_FOLDER: Final = "driver/nvidia/capabilities"
_MINOR: Final = re.compile(r"^DeviceFileMinor:\s*(\d+)\s*$", re.MULTILINE | re.ASCII)
_MODULE: Final = "nvidia-caps"


def capability_nodes(
    proc_root: Path, host_dev: Path, *, minor: int, gi: int, ci: int
) -> tuple[DeviceNode, DeviceNode]:
    """For GPU instance `gi` and compute instance `ci` of the GPU with that minor number, in this
    order. `host_dev`: /dev as the container runtime sees it.
    """
    major = _major(proc_root / "devices")
    instance = proc_root / _FOLDER / f"gpu{minor}/mig/gi{gi}"
    return (
        _node(host_dev, major, _access(instance / "access")),
        _node(host_dev, major, _access(instance / f"ci{ci}/access")),
    )


def _node(host_dev: Path, major: int, minor: int) -> DeviceNode:
    name = f"nvidia-caps/nvidia-cap{minor}"
    return DeviceNode(path=f"/dev/{name}", host_path=str(host_dev / name), major=major, minor=minor)


def _access(path: Path) -> int:
    found = _MINOR.search(_read(path, "cannot read the MIG capability"))
    if found is None:
        raise StateError(
            f"MIG capability {path} has no line `DeviceFileMinor: NUMBER`; check that proc_root is"
            " the host's /proc and that the driver supports MIG"
        )
    return int(found[1])


def _major(path: Path) -> int:
    """Of the character devices; the block devices below them have numbers of their own."""
    characters = _read(path, "cannot read the device numbers").partition("Block devices:")[0]
    for line in characters.splitlines():
        number, _, name = line.strip().partition(" ")
        if name.strip() == _MODULE and number.isdecimal():
            return int(number)
    raise StateError(
        f"{path} has no character device {_MODULE}; load the NVIDIA kernel module (`nvidia-modprobe"
        " -c 0`), and check that proc_root is the host's /proc"
    )


def _read(path: Path, doing: str) -> str:
    try:
        return path.read_text(encoding="ascii")
    except FileNotFoundError as error:
        raise StateError(
            f"{doing} {path}: it is not there; is the instance on this GPU (`nvidia-smi mig"
            " -lgi`), and is proc_root the host's /proc?"
        ) from error
    except OSError as error:
        raise state_error(doing, path, error) from error
