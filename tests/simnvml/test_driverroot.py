"""The files beside NVML: do they say the same as NVML, and follow it?"""

from __future__ import annotations

import ctypes
import os
import stat
import subprocess
from pathlib import Path

import pynvml as n
import pytest

from hack.simnvml import library
from hack.simnvml.caps import ci_minor, gi_minor, mig_minors
from hack.simnvml.driverroot import render
from tests.simnvml.helpers import partition, start

LIBRARY = "usr/lib/x86_64-linux-gnu/libnvidia-ml.so"


def pcie_root(root: Path, bdf: str) -> str:
    """As a driver finds it: where the link of the device leads."""
    resolved = (root / "sys/bus/pci/devices" / bdf).resolve().relative_to(root.resolve())
    return resolved.parts[2]


def test_library_and_version_carry_the_driver_version(make_machine, tmp_path) -> None:
    machine = make_machine(driver="580.95.05")
    render(machine, tmp_path, nodes=False)
    assert (tmp_path / f"{LIBRARY}.1").readlink() == Path("libnvidia-ml.so.580.95.05")
    assert "580.95.05" in (tmp_path / "proc/driver/nvidia/version").read_text()
    machine.set(driver="610.12.04")
    render(machine, tmp_path, nodes=False)
    libraries = {path.name for path in (tmp_path / LIBRARY).parent.iterdir()}
    assert libraries == {
        f"{stem}.so.{suffix}"
        for stem in ("libcuda", "libnvidia-ml")
        for suffix in ("1", "610.12.04")
    }


@pytest.mark.parametrize("preset", ["dgx-h100", "dgx-a100", "a30x4"])
def test_every_gpu_has_its_node_its_page_and_its_place_in_sysfs(
    nvml, make_machine, tmp_path, preset
) -> None:
    machine = make_machine(preset)
    render(machine, tmp_path, nodes=False, ahead=False)
    n.nvmlInit()
    for index in range(n.nvmlDeviceGetCount()):
        gpu = n.nvmlDeviceGetHandleByIndex(index)
        bdf = n.nvmlDeviceGetPciInfo(gpu).busId.lower().removeprefix("0000")
        page = (tmp_path / f"proc/driver/nvidia/gpus/{bdf}/information").read_text()
        assert n.nvmlDeviceGetUUID(gpu) in page
        assert (tmp_path / f"dev/nvidia{n.nvmlDeviceGetMinorNumber(gpu)}").exists()
        device = tmp_path / "sys/bus/pci/devices" / bdf
        assert int((device / "numa_node").read_text()) == n.nvmlDeviceGetNumaNodeId(gpu)
        assert (device / "vendor").read_text() == "0x10de\n"
        assert pcie_root(tmp_path, bdf).startswith("pci0000:")


def test_gpus_below_one_switch_share_a_root_and_a_near_ancestor(
    nvml, make_machine, tmp_path
) -> None:
    machine = make_machine("dgx-a100")
    render(machine, tmp_path, nodes=False, ahead=False)
    roots = [pcie_root(tmp_path, gpu.pci) for gpu in machine.gpus]
    assert roots[0] == roots[1] != roots[2]
    n.nvmlInit()
    first, second, third = (n.nvmlDeviceGetHandleByIndex(i) for i in range(3))
    ancestor = n.nvmlDeviceGetTopologyCommonAncestor
    assert ancestor(first, second) == n.NVML_TOPOLOGY_SINGLE
    assert ancestor(first, third) == n.NVML_TOPOLOGY_SYSTEM


@pytest.mark.skipif(os.geteuid() != 0, reason="mknod needs root")
def test_device_nodes_have_the_numbers_that_proc_devices_names(make_machine, tmp_path) -> None:
    render(make_machine(), tmp_path, nodes=True, ahead=False)
    devices = (tmp_path / "proc/devices").read_text()
    majors = {name: int(major) for major, name in map(str.split, devices.splitlines()[1:5])}
    wanted = {
        "nvidia0": (majors["nvidia"], 0),
        "nvidia1": (majors["nvidia"], 1),
        "nvidiactl": (majors["nvidiactl"], 255),
        "nvidia-uvm-tools": (majors["nvidia-uvm"], 1),
        "nvidia-caps/nvidia-cap2": (majors["nvidia-caps"], 2),
    }
    for name, numbers in wanted.items():
        status = (tmp_path / "dev" / name).stat()
        assert stat.S_ISCHR(status.st_mode)
        assert (os.major(status.st_rdev), os.minor(status.st_rdev)) == numbers


def test_capability_files_come_and_go_with_partitions(nvml, make_machine, tmp_path) -> None:
    machine = make_machine("h100x2")
    gpu = start(1, mig=True)
    gi, ci, _ = partition(gpu)
    render(machine, tmp_path, nodes=False, ahead=False)
    access = tmp_path / "proc/driver/nvidia/capabilities/gpu1/mig/gi7/ci0/access"
    assert f"DeviceFileMinor: {ci_minor(1, 7, 0)}\n" in access.read_text()
    node = tmp_path / f"dev/nvidia-caps/nvidia-cap{gi_minor(1, 7)}"
    assert node.exists()
    n.nvmlComputeInstanceDestroy(ci)
    n.nvmlGpuInstanceDestroy(gi)
    render(machine, tmp_path, nodes=False, ahead=False)
    assert not access.exists()
    assert not node.exists()


def test_the_table_of_minors_agrees_with_the_files_made_ahead(make_machine, tmp_path) -> None:
    render(make_machine(["h100-80", "l40s"]), tmp_path, nodes=False)
    table = dict(line.split() for line in mig_minors().splitlines())
    assert (table["config"], table["gpu0/gi0/access"]) == ("1", "3")
    assert (table["gpu1/gi0/access"], table["gpu0/gi1/ci2/access"]) == ("138", "15")
    tree = tmp_path / "proc/driver/nvidia/capabilities"
    files = list(tree.glob("gpu*/**/access"))
    assert len(files) == 15 * 9  # those of the GPU that has MIG
    for path in files:
        name = path.relative_to(tree).as_posix().replace("/mig/", "/")
        assert path.read_text().split()[1] == table[name]


def test_a_gpu_off_the_bus_leaves_the_trees(make_machine, tmp_path) -> None:
    machine = make_machine("h100x2")
    render(machine, tmp_path, nodes=False, ahead=False)
    gone = machine.gpu(1)
    gone.lose(off_bus=True)
    render(machine, tmp_path, nodes=False, ahead=False)
    left = {path.name for path in tmp_path.rglob("*") if gone.pci in path.name}
    assert left == set()
    assert not (tmp_path / "dev/nvidia1").exists()
    assert (tmp_path / "dev/nvidia0").exists()


def test_a_lost_gpu_that_is_still_on_the_bus_reads_as_ones(make_machine, tmp_path) -> None:
    machine = make_machine("h100x2")
    lost, well = (tmp_path / "sys/bus/pci/devices" / machine.gpu(slot).pci for slot in range(2))
    machine.gpu(0).lose()
    render(machine, tmp_path, nodes=False)
    assert (lost / "config").read_bytes()[:4] == b"\xff" * 4
    assert (well / "config").read_bytes()[:2] == b"\xde\x10"
    assert (well / "driver").readlink().name == "nvidia"


def test_nvidia_smi_of_the_root_lists_gpus_and_partitions(nvml, make_machine, tmp_path) -> None:
    machine = make_machine("h100x2")
    _, _, uuid = partition(start(mig=True), "2g.20gb")
    render(machine, tmp_path, nodes=False, ahead=False)
    folder = (tmp_path / LIBRARY).parent
    out = subprocess.run(
        [tmp_path / "usr/bin/nvidia-smi", "-L"],
        env=os.environ | {"LD_LIBRARY_PATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert out.splitlines() == [
        f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {machine.gpu(0).uuid})",
        f"  MIG 2g.20gb    Device  0: (UUID: {uuid})",
        f"GPU 1: NVIDIA H100 80GB HBM3 (UUID: {machine.gpu(1).uuid})",
    ]


def test_the_copy_in_a_driver_root_is_a_library_of_its_own(nvml, make_machine, tmp_path) -> None:
    """A driver loads the copy while the test process holds the original of the same SONAME."""
    machine = make_machine()
    render(machine, tmp_path, nodes=False, ahead=False)
    copy = ctypes.CDLL(str(tmp_path / f"{LIBRARY}.1"))
    assert copy.nvmlInit_v2() == n.NVML_SUCCESS
    count = ctypes.c_uint()
    assert copy.nvmlDeviceGetCount_v2(ctypes.byref(count)) == n.NVML_SUCCESS
    assert count.value == 2
    assert library.load().nvmlShutdown() == n.NVML_ERROR_UNINITIALIZED
    assert copy.nvmlShutdown() == n.NVML_SUCCESS
