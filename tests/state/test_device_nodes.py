"""Device nodes, /proc and the PCI tree of a simulated machine, and each thing that may be wrong."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from driver.core.health.signals import CannotTell, Fault, Need, Signal, Well
from driver.core.ids import GpuUuid
from driver.core.snapshot import PciAddress
from driver.plugin.supervise import Wakeup
from driver.state.device_nodes import DeviceNodes, Place, Trees
from hack.simnvml import driverroot
from hack.simnvml.kit import Machine
from hack.simnvml.testing import make_machine

__all__ = ["make_machine"]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mknod needs root")


@dataclass
class Looker:
    machine: Machine
    root: Path
    source: DeviceNodes

    def look(self) -> list[Signal]:
        return self.source.look()

    def troubles(self) -> dict[str, str]:
        return {s.name: s.detail for s in self.look() if isinstance(s, CannotTell | Fault)}

    def render(self) -> None:
        driverroot.render(self.machine, self.root, nodes=True, ahead=False)


@pytest.fixture
def looker(make_machine, tmp_path) -> Looker:
    machine = make_machine("h100x2")
    root = tmp_path / "root"
    driverroot.render(machine, root, nodes=True, ahead=False)
    places = tuple(
        Place(
            gpu=GpuUuid(gpu.uuid),
            minor=gpu.minor,
            pci=PciAddress(
                domain=gpu.number("domain"), bus=gpu.number("bus"), device=gpu.number("device")
            ),
        )
        for gpu in machine.gpus
    )
    trees = Trees(dev=lambda: root / "dev", proc=root / "proc", sys=root / "sys")
    source = DeviceNodes(trees, gpus=lambda: places, sink=lambda *_: None, alarm=Wakeup())
    return Looker(machine, root, source)


@needs_root
def test_a_complete_node_is_well_in_every_part(looker) -> None:
    signals = looker.look()
    assert all(isinstance(s, Well) for s in signals)
    names = {s.name for s in signals}
    assert names >= {"driver-module", "node-nvidiactl", "node-nvidia-uvm", "node-nvidia-uvm-tools"}
    assert names >= {"node-nvidia0", "node-nvidia1", "driver-gpu", "off-the-bus", "driver-binding"}


@needs_root
def test_d31_a_missing_uvm_node_is_of_the_whole_node_and_named(looker) -> None:
    (looker.root / "dev/nvidia-uvm").unlink()
    (wrong,) = [s for s in looker.look() if isinstance(s, CannotTell)]
    assert wrong.scope.gpu is None
    assert wrong.name == "node-nvidia-uvm"
    assert "/dev/nvidia-uvm" in wrong.detail
    assert "nvidia-modprobe" in wrong.detail
    looker.render()
    assert looker.troubles() == {}


def remove(name: str) -> Callable[[Looker], object]:
    return lambda looker: (looker.root / name).unlink()


def renumber(name: str, major: int, minor: int) -> Callable[[Looker], object]:
    def change(looker: Looker) -> None:
        path = looker.root / name
        path.unlink()
        os.mknod(path, 0o020666, os.makedev(major, minor))

    return change


def write(name: str, text: str) -> Callable[[Looker], object]:
    return lambda looker: (looker.root / name).write_text(text)


@needs_root
@pytest.mark.parametrize(
    ("change", "name", "words"),
    [
        (remove("dev/nvidiactl"), "node-nvidiactl", "No such file"),
        (remove("dev/nvidia-uvm-tools"), "node-nvidia-uvm-tools", "No such file"),
        (remove("dev/nvidia1"), "node-nvidia1", "No such file"),
        (renumber("dev/nvidia-uvm", 509, 0), "node-nvidia-uvm", "509:0, not 510:0"),
        (renumber("dev/nvidia1", 195, 3), "node-nvidia1", "195:3, not 195:1"),
        (remove("proc/driver/nvidia/version"), "driver-module", "not loaded"),
    ],
)
def test_each_part_that_is_missing_or_wrong_is_named(looker, change, name, words) -> None:
    change(looker)
    troubles = looker.troubles()
    assert troubles.keys() == {name}
    assert words in troubles[name]


@needs_root
def test_a_plain_file_is_no_device_node(looker) -> None:
    node = looker.root / "dev/nvidia-uvm"
    node.unlink()
    node.touch()
    assert "not a character device" in looker.troubles()["node-nvidia-uvm"]


@needs_root
def test_numbers_that_cannot_be_read_are_said_of_every_node(looker) -> None:
    write("proc/devices", "")(looker)
    assert "no module has its number" in looker.troubles()["node-nvidia-uvm"]


@needs_root
@pytest.mark.parametrize("gone", [False, True])
def test_a_gpu_off_the_bus_is_a_fault_of_that_gpu_alone(looker, gone) -> None:
    gpu = looker.machine.gpu(1)
    gpu.lose(off_bus=gone)
    looker.render()
    faults = [s for s in looker.look() if isinstance(s, Fault)]
    assert [(f.name, f.need, f.scope.gpu) for f in faults] == [
        ("off-the-bus", Need.REBOOT, gpu.uuid)
    ]
    gpu.reset()
    looker.render()
    assert looker.troubles() == {}


@needs_root
def test_a_gpu_that_another_driver_has_taken_is_named(looker) -> None:
    (function,) = (looker.root / "sys/bus/pci/devices").glob(looker.machine.gpu(0).pci)
    link = function / "driver"
    link.unlink()
    assert "no driver" in looker.troubles()["driver-binding"]
    link.symlink_to("/sys/bus/pci/drivers/vfio-pci")
    assert "vfio-pci" in looker.troubles()["driver-binding"]


def test_without_any_driver_everything_is_cannot_tell_and_nothing_fails(tmp_path) -> None:
    trees = Trees(dev=lambda: tmp_path / "dev", proc=tmp_path / "proc", sys=tmp_path / "sys")
    place = Place(gpu=GpuUuid("GPU-x"), minor=0, pci=PciAddress(domain=0, bus=1, device=0))
    source = DeviceNodes(trees, gpus=lambda: (place,), sink=lambda *_: None, alarm=Wakeup())
    signals = source.look()
    assert {type(s) for s in signals if s.scope == source.look()[0].scope} == {CannotTell}  # type: ignore[union-attr]
    assert not [s for s in signals if isinstance(s, Fault)]
