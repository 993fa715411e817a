"""Looks at the way to each GPU that needs no NVML: device nodes, /proc of the driver, the PCI bus.

Why it exists: a GPU can be in order and still not be usable, as when the node of unified memory is
missing after a boot; and a GPU that is off the bus reads as ones, whatever NVML remembers. What is
missing here is software of the node, not a broken board: it is "cannot tell", and ends when it is
there again.

Must not know NVML.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from driver.core.health.signals import NODE, CannotTell, Fault, Need, Scope, Signal, Source, Well
from driver.core.ids import GpuUuid
from driver.core.snapshot import PciAddress
from driver.ports.health import Alarm, Sink

DRIVER: Final = "driver-module"
OFF_BUS: Final = "off-the-bus"

_CONTROL_MINOR: Final = 255
_SHARED: Final = {"nvidiactl": _CONTROL_MINOR, "nvidia-uvm": 0, "nvidia-uvm-tools": 1}
_MODULES: Final = {"nvidiactl": ("nvidiactl", "nvidia-frontend", "nvidia")}
_UVM: Final = ("nvidia-uvm",)
_GPU: Final = ("nvidia", "nvidia-frontend")
"""The names of a module's number in /proc/devices, newest first; they changed over the years."""
_MAKE: Final = "run `nvidia-modprobe -c 0 -u` on the host, or look at the driver container"
_ONES: Final = b"\xff" * 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a GPU is: the number of its device node and its address on the bus."""

    gpu: GpuUuid
    minor: int
    pci: PciAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class Trees:
    """`dev`: where the driver's nodes are, asked at each look: a driver container may move them."""

    dev: Callable[[], Path]
    proc: Path
    sys: Path


class DeviceNodes:
    """Implements `driver.ports.health.HealthSource`."""

    name = "device-nodes"

    def __init__(
        self,
        trees: Trees,
        *,
        gpus: Callable[[], tuple[Place, ...]],
        sink: Sink,
        alarm: Alarm,
        period: float = 10.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`gpus`: those that are published; `period`: seconds."""
        self._trees = trees
        self._gpus = gpus
        self._sink = sink
        self._alarm = alarm
        self._period = period
        self._clock = clock

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self._sink(*self.look())
            self._alarm.wait(self._period)

    def look(self) -> list[Signal]:
        at = self._clock()
        numbers = _device_numbers(self._trees.proc)
        return [*self._node(at, numbers), *self._each(at, numbers)]

    def _node(self, at: float, numbers: dict[str, int]) -> Iterator[Signal]:
        version = self._trees.proc / "driver/nvidia/version"
        yield _judged(
            NODE,
            DRIVER,
            at,
            "" if version.exists() else f"{version} is missing: the kernel module is not loaded",
        )
        for name, minor in _SHARED.items():
            modules = _MODULES.get(name, _UVM)
            yield self._device_node(NODE, name, modules, minor, at, numbers)

    def _each(self, at: float, numbers: dict[str, int]) -> Iterator[Signal]:
        for place in self._gpus():
            scope = Scope(gpu=place.gpu)
            name = f"nvidia{place.minor}"
            yield self._device_node(scope, name, _GPU, place.minor, at, numbers)
            folder = self._trees.proc / f"driver/nvidia/gpus/{place.pci}"
            yield _judged(
                scope,
                "driver-gpu",
                at,
                "" if folder.exists() else f"{folder} is missing: the driver has not taken the GPU",
            )
            yield from self._bus(scope, place, at)

    def _bus(self, scope: Scope, place: Place, at: float) -> Iterator[Signal]:
        function = self._trees.sys / f"bus/pci/devices/{place.pci}"
        if _off_bus(function):
            yield Fault(
                source=Source.NODES,
                scope=scope,
                name=OFF_BUS,
                need=Need.REBOOT,
                at=at,
                detail=f"PCI device {place.pci} does not answer",
            )
            return
        yield Well(source=Source.NODES, scope=scope, name=OFF_BUS, at=at)
        driver = function / "driver"
        bound = driver.readlink().name if driver.is_symlink() else "no driver"
        yield _judged(
            scope,
            "driver-binding",
            at,
            "" if bound == "nvidia" else f"PCI device {place.pci} is bound to {bound}, not nvidia",
        )

    def _device_node(
        self,
        scope: Scope,
        name: str,
        modules: tuple[str, ...],
        minor: int,
        at: float,
        numbers: dict[str, int],
    ) -> Signal:
        path = self._trees.dev() / name
        major = next((numbers[each] for each in modules if each in numbers), None)
        return _judged(scope, f"node-{name}", at, _wrong(path, major, minor))


def _judged(scope: Scope, name: str, at: float, wrong: str) -> Signal:
    if not wrong:
        return Well(source=Source.NODES, scope=scope, name=name, at=at)
    return CannotTell(source=Source.NODES, scope=scope, name=name, at=at, detail=wrong)


def _wrong(path: Path, major: int | None, minor: int) -> str:
    """What is wrong with a device node; empty where nothing is."""
    try:
        found = path.stat()
    except OSError as error:
        return f"device node {path}: {error.strerror}; {_MAKE}"
    if not stat.S_ISCHR(found.st_mode):
        return f"{path} is not a character device; remove it, then {_MAKE}"
    have = (os.major(found.st_rdev), os.minor(found.st_rdev))
    if major is None:
        return f"{path} is there, but no module has its number; {_MAKE}"
    if have != (major, minor):
        return (
            f"{path} has number {have[0]}:{have[1]}, not {major}:{minor}; remove it, then {_MAKE}"
        )
    return ""


def _device_numbers(proc: Path) -> dict[str, int]:
    """Of character devices, by name; none where they cannot be read, which each node then says."""
    try:
        text = (proc / "devices").read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return {}
    found: dict[str, int] = {}
    for line in text.partition("Block devices:")[0].splitlines():
        number, _, name = line.strip().partition(" ")
        if number.isdecimal():
            found[name.strip()] = int(number)
    return found


def _off_bus(function: Path) -> bool:
    """The device is gone from the tree, or answers with ones."""
    try:
        with (function / "config").open("rb") as config:
            return config.read(4) == _ONES
    except FileNotFoundError:
        return function.parent.is_dir() and not function.exists()
    except OSError:
        return False
