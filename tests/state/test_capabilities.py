from __future__ import annotations

from pathlib import Path

import pytest

from driver.core.cdi import DeviceNode
from driver.core.errors import StateError
from driver.state.capabilities import capability_nodes
from hack.simnvml import caps, driverroot
from hack.simnvml.testing import make_machine

__all__ = ["make_machine"]

HOST = Path("/run/nvidia/driver/dev")
DEVICES = """\
Character devices:
  1 mem
195 nvidia
238 nvidia-caps-imex-channels
239 nvidia-caps
511 nvidia-uvm

Block devices:
  7 nvidia-caps
"""


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """With GPU 2's GPU instance 9 and its compute instance 1."""
    (tmp_path / "devices").write_text(DEVICES)
    folder = tmp_path / "driver/nvidia/capabilities/gpu2/mig/gi9"
    (folder / "ci1").mkdir(parents=True)
    (folder / "access").write_text("DeviceFileMinor: 354\nDeviceFileMode: 292\n")
    (folder / "ci1/access").write_text("DeviceFileMinor: 356\nDeviceFileMode: 292\n")
    return tmp_path


def nodes(proc: Path) -> tuple[DeviceNode, DeviceNode]:
    return capability_nodes(proc, HOST, minor=2, gi=9, ci=1)


def test_the_nodes_are_told_by_number_whether_the_host_has_them_or_not(proc):
    assert nodes(proc) == tuple(
        DeviceNode(
            path=f"/dev/nvidia-caps/nvidia-cap{minor}",
            host_path=f"/run/nvidia/driver/dev/nvidia-caps/nvidia-cap{minor}",
            major=239,
            minor=minor,
        )
        for minor in (354, 356)
    )


def test_the_numbers_are_those_of_the_kernel_module(make_machine, tmp_path):
    machine = make_machine("h100x2")
    gpu = machine.gpu(1)
    driverroot.render(machine, tmp_path / "root", nodes=False, ahead=True)
    found = capability_nodes(tmp_path / "root/proc", HOST, minor=gpu.minor, gi=3, ci=2)
    assert [node.major for node in found] == [machine.get("major_caps")] * 2
    assert [node.minor for node in found] == [
        caps.gi_minor(gpu.minor, 3),
        caps.ci_minor(gpu.minor, 3, 2),
    ]


@pytest.mark.parametrize("name", ["gi9/access", "gi9/ci1/access"])
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "is not there.*is the instance on this GPU.*nvidia-smi mig -lgi.*host's /proc"),
        ("DeviceFileMode: 292\n", "has no line `DeviceFileMinor: NUMBER`; check that proc_root"),
    ],
    ids=["missing", "no number in it"],
)
def test_a_capability_that_cannot_be_told_is_an_error_that_says_where(proc, name, content, says):
    path = proc / "driver/nvidia/capabilities/gpu2/mig" / name
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(StateError, match=f"{path}.*{says}"):
        nodes(proc)


def test_without_the_kernel_module_the_error_says_load_it(proc):
    (proc / "devices").write_text(DEVICES.replace("239 nvidia-caps\n", ""))
    with pytest.raises(StateError, match=r"devices has no character device nvidia-caps; load"):
        nodes(proc)


def test_without_a_proc_at_all_the_path_is_named(tmp_path):
    with pytest.raises(StateError, match=f"device numbers {tmp_path}/devices: it is not there"):
        nodes(tmp_path)


def test_a_file_that_cannot_be_read_gives_the_systems_reason(proc):
    path = proc / "driver/nvidia/capabilities/gpu2/mig/gi9/access"
    path.unlink()
    path.mkdir()
    with pytest.raises(StateError, match=f"cannot read the MIG capability {path}: Is a directory"):
        nodes(proc)
