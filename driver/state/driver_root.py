"""The NVIDIA driver's device nodes and libraries as they are at this preparation.

Why nothing is assumed: after a boot, or while a driver container restarts, nodes and libraries come
one after the other. A claim prepared too early would get a container without a GPU, so what is
missing is an error that says so, and the kubelet asks again.

The driver may be installed on the host, or in a container's root that is mounted on the host; the
plugin and the container runtime then see the same tree at different paths.

Must not know claims.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from driver.core.cdi import DeviceNode, DriverFiles
from driver.core.errors import StateError
from driver.core.rooted import LIBRARY_FOLDERS
from driver.core.snapshot import GpuFacts
from driver.ports.state import PartitionAt
from driver.state.capabilities import capability_nodes
from driver.state.libraries import Libraries

_CONTROL: Final = "nvidiactl"
_SHARED: Final = (_CONTROL, "nvidia-uvm", "nvidia-uvm-tools")
_OPTIONAL: Final = ("nvidia-modeset",)
_CONTROL_MINOR: Final = 255
_MAKE_NODES: Final = (
    "run `nvidia-modprobe -c 0 -u` on the host, or check that the driver container is ready"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """Where the driver is: as this process sees it, and as the container runtime does.

    `dev` and `host_dev` are used unless the root has device nodes of its own.
    """

    root: Path = Path("/")
    host_root: Path = Path("/")
    dev: Path = Path("/dev")
    host_dev: Path = Path("/dev")
    proc: Path = Path("/proc")


class DriverTree:
    """Implements `driver.ports.state.DriverRoot`. Nodes are read at each call, never remembered."""

    def __init__(
        self,
        roots: Roots,
        *,
        container_folders: tuple[str, ...],
        required: tuple[str, ...],
    ) -> None:
        """`container_folders`: where libraries go; `required`: those that must be there."""
        self._roots = roots
        self._required = required
        self._libraries = Libraries(
            roots.root,
            host_root=roots.host_root,
            container_folders=container_folders,
        )

    def files(
        self, gpus: tuple[GpuFacts, ...], partitions: tuple[PartitionAt, ...] = ()
    ) -> DriverFiles:
        found = self._libraries.find()
        missing = [name for name in self._required if name not in found.names]
        if missing:
            raise StateError(
                f"driver root {self._roots.root} has no {', '.join(missing)} in"
                f" {', '.join(LIBRARY_FOLDERS)}; install the driver there, or set driver_root"
                " (host_driver_root) to where it is"
            )
        dev, host_dev = self.dev()
        optional = [name for name in _OPTIONAL if os.path.lexists(dev / name)]
        return DriverFiles(
            gpus={gpu.uuid: _gpu_node(dev, host_dev, gpu) for gpu in gpus},
            control=tuple(_node(dev, host_dev, name) for name in (*_SHARED, *optional)),
            mounts=found.mounts,
            capabilities={
                each.made.uuid: capability_nodes(
                    self._roots.proc,
                    host_dev,
                    minor=each.minor,
                    gi=each.made.instance,
                    ci=each.made.compute,
                )
                for each in partitions
            },
        )

    def dev(self) -> tuple[Path, Path]:
        """The folder of device nodes, as we see it and as the container runtime does."""
        own = self._roots.root / "dev"
        if (own / _CONTROL).exists():
            return own, self._roots.host_root / "dev"
        return self._roots.dev, self._roots.host_dev


def _gpu_node(dev: Path, host_dev: Path, gpu: GpuFacts) -> DeviceNode:
    node = _node(dev, host_dev, f"nvidia{gpu.minor}")
    _expect_minor(node, gpu.minor, dev)
    return node


def _node(dev: Path, host_dev: Path, name: str) -> DeviceNode:
    path = dev / name
    try:
        found = path.stat()
    except OSError as error:
        raise StateError(f"device node {path}: {error.strerror}; {_MAKE_NODES}") from error
    if not stat.S_ISCHR(found.st_mode):
        raise StateError(
            f"{path} is not a character device; remove what is there, then {_MAKE_NODES}"
        )
    node = DeviceNode(
        path=f"/dev/{name}",
        host_path=str(host_dev / name),
        major=os.major(found.st_rdev),
        minor=os.minor(found.st_rdev),
    )
    if name == _CONTROL:
        _expect_minor(node, _CONTROL_MINOR, dev)
    return node


def _expect_minor(node: DeviceNode, minor: int, dev: Path) -> None:
    """A node left by another driver or boot would open another GPU."""
    if node.minor != minor:
        raise StateError(
            f"{dev / Path(node.path).name} has minor number {node.minor}, expected {minor}; remove"
            f" the node, then {_MAKE_NODES}"
        )
