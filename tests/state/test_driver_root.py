import time
from pathlib import Path

import pytest

from driver.core.cdi import DeviceNode, DriverFiles, Mount
from driver.core.errors import StateError
from driver.core.ledger import Made
from driver.ports.state import PartitionAt
from driver.state.driver_root import DriverTree, Roots
from driver.state.libraries import Libraries
from tests.state.roots import TRIPLE, VERSION, add_libraries, add_nodes, age, gpu, make_node

REQUIRED = ("libcuda.so.1", "libnvidia-ml.so.1")
HOST = Path("/run/nvidia/driver")


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "root"
    add_libraries(root)
    add_nodes(root / "dev")
    return root


def tree(root: Path, **roots: Path) -> DriverTree:
    return DriverTree(
        Roots(**{"root": root, "host_root": HOST, **roots}),
        container_folders=("/usr/lib64",),
        required=REQUIRED,
    )


def mounts(files: DriverFiles) -> dict[str, str]:
    return {m.container_path: m.host_path for m in files.mounts}


def libraries(root: Path, **options) -> Libraries:
    return Libraries(root, host_root=HOST, container_folders=("/l",), **options)


def test_nodes_and_libraries_are_told_as_the_container_runtime_sees_them(root):
    files = tree(root).files((gpu(0), gpu(3)))
    assert files.gpus[gpu(3).uuid] == DeviceNode(
        path="/dev/nvidia3", host_path="/run/nvidia/driver/dev/nvidia3", major=195, minor=3
    )
    assert [n.path for n in files.control] == [
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
    ]
    real = f"/run/nvidia/driver/{TRIPLE}"
    assert mounts(files) == {
        f"/usr/lib64/libcuda.so.{VERSION}": f"{real}/libcuda.so.{VERSION}",
        "/usr/lib64/libcuda.so.1": f"{real}/libcuda.so.{VERSION}",
        f"/usr/lib64/libnvidia-ml.so.{VERSION}": f"{real}/libnvidia-ml.so.{VERSION}",
        "/usr/lib64/libnvidia-ml.so.1": f"{real}/libnvidia-ml.so.{VERSION}",
    }


def test_a_root_without_nodes_of_its_own_uses_those_of_the_host(tmp_path):
    add_libraries(tmp_path / "root")
    add_nodes(tmp_path / "dev")
    files = tree(tmp_path / "root", dev=tmp_path / "dev", host_dev=Path("/dev")).files((gpu(0),))
    assert files.gpus[gpu(0).uuid].host_path == "/dev/nvidia0"


def test_modeset_is_given_where_it_is(root):
    make_node(root / "dev/nvidia-modeset", 254)
    assert tree(root).files(()).control[-1].path == "/dev/nvidia-modeset"


@pytest.mark.parametrize("name", ["nvidia-uvm", "nvidia-uvm-tools", "nvidia3"])
@pytest.mark.parametrize("instead", ["nothing", "a plain file"])
def test_a_missing_or_wrong_node_is_an_error_at_each_call_until_it_is_there(root, name, instead):
    driver = tree(root)
    driver.files((gpu(3),))
    node = root / "dev" / name
    node.rename(root / "dev/away")
    if instead == "a plain file":
        node.touch()
    with pytest.raises(StateError, match=f"{node}.*nvidia-modprobe -c 0 -u.*driver container"):
        driver.files((gpu(3),))
    (root / "dev/away").rename(node)
    driver.files((gpu(3),))


def test_a_node_that_leads_to_another_gpu_is_refused(root):
    (root / "dev/nvidia3").unlink()
    make_node(root / "dev/nvidia3", 4)
    with pytest.raises(StateError, match="nvidia3 has minor number 4, expected 3; remove"):
        tree(root).files((gpu(3),))


def test_a_missing_library_is_an_error_that_says_where_it_was_searched(root):
    driver = tree(root)
    (root / TRIPLE / f"libcuda.so.{VERSION}").unlink()
    with pytest.raises(StateError, match=r"has no libcuda\.so\.1 in .*usr/lib64.*driver_root"):
        driver.files(())
    add_libraries(root, ["libcuda"])
    assert f"/usr/lib64/libcuda.so.{VERSION}" in mounts(driver.files(()))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("libcuda.so", True),
        ("libcudadebugger.so.1", True),
        ("libnvidia-ptxjitcompiler.so.580.95.05", True),
        ("libnvidia-nvvm.so.4", True),
        ("libnvidia-nvvm70.so.4", True),
        ("libnvidia-pkcs11-openssl3.so.580.95.05", True),
        ("libnvcuvid.so.1", True),
        ("libnvoptix.so.1", True),
        ("libnvidia-ml.a", False),
        ("libcudart.so.12", False),
        ("libnvidia-container.so.1", False),
        ("libc.so.6", False),
    ],
)
def test_only_the_drivers_own_libraries_are_mounted(tmp_path, name, wanted):
    add_libraries(tmp_path, [])
    (tmp_path / TRIPLE / name).touch()
    assert (name in libraries(tmp_path).find().names) is wanted


def test_one_library_in_several_folders_is_mounted_once_64_bit_first(tmp_path):
    add_libraries(tmp_path, ["libcuda"], folder="usr/lib64")
    add_libraries(tmp_path, ["libcuda", "libnvcuvid"], folder="usr/lib")
    (tmp_path / "lib64").symlink_to("usr/lib64")
    found = {m.container_path: m.host_path for m in libraries(tmp_path).find().mounts}
    assert found["/l/libcuda.so.1"] == f"{HOST}/usr/lib64/libcuda.so.{VERSION}"
    assert found["/l/libnvcuvid.so.1"] == f"{HOST}/usr/lib/libnvcuvid.so.{VERSION}"
    assert len(found) == 4


def test_links_out_of_the_root_and_folders_are_never_mounted(tmp_path):
    where = add_libraries(tmp_path / "root", [])
    (tmp_path / "host.so").touch()
    (where / "libcuda.so.1").symlink_to(tmp_path / "host.so")
    (where / "libnvidia-ml.so.1").mkdir()
    assert libraries(tmp_path / "root").find().names == frozenset()


def test_programs_are_mounted_where_they_are(tmp_path):
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/nvidia-smi").touch()
    (tmp_path / "usr/bin/bash").touch()
    assert libraries(tmp_path).find().mounts == (
        Mount(host_path=f"{HOST}/usr/bin/nvidia-smi", container_path="/usr/bin/nvidia-smi"),
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda root: add_libraries(root, ["libnvcuvid"]),
        lambda root: (root / TRIPLE / f"libcuda.so.{VERSION}").unlink(),
        lambda root: (root / "opt/nvidia/libnvoptix.so.580").unlink(),
        lambda root: add_libraries(root, ["libnvcuvid"], folder="usr/lib64"),
        lambda root: (root / "usr/bin").mkdir(),
        lambda root: (root / "usr").rename(root / "usr.old"),
    ],
    ids=["new", "gone", "link target gone", "new folder", "new program folder", "other tree"],
)
def test_the_libraries_are_read_again_when_a_folder_that_mattered_changed(tmp_path, change):
    where = add_libraries(tmp_path)
    (tmp_path / "opt/nvidia").mkdir(parents=True)
    (tmp_path / "opt/nvidia/libnvoptix.so.580").touch()
    (where / "libnvoptix.so.1").symlink_to("/opt/nvidia/libnvoptix.so.580")
    age(tmp_path)
    driver = libraries(tmp_path)
    driver.find()
    driver.find()
    assert driver.scans == 1
    change(tmp_path)
    assert driver.find() == libraries(tmp_path).find()
    assert driver.scans == 2


def test_a_tree_that_changed_a_moment_ago_is_not_remembered(tmp_path):
    """A second change within the clock's tick would leave the same time."""
    add_libraries(tmp_path)
    driver = libraries(tmp_path)
    driver.find()
    driver.find()
    assert driver.scans == 2
    later = libraries(tmp_path, now_ns=lambda: time.time_ns() + 10**10)
    later.find()
    later.find()
    assert later.scans == 1


def test_a_warm_answer_is_much_cheaper_than_a_scan(root):
    """Both measured here, so that a slow machine does not matter."""
    names = [f"libnvidia-nvvm{n}" for n in range(40)]
    add_libraries(root, names)
    age(root)
    warm = tree(root)
    gpus = (gpu(0), gpu(3))
    warm.files(gpus)

    def best(call) -> float:
        times = []
        for _ in range(20):
            began = time.perf_counter()
            call()
            times.append(time.perf_counter() - began)
        return min(times)

    assert best(lambda: warm.files(gpus)) < best(lambda: tree(root).files(gpus)) / 4


def partition_at(minor, instance, uuid):
    return PartitionAt(minor=minor, made=Made(instance=instance, compute=0, uuid=uuid))


def test_each_partition_gets_the_two_nodes_that_open_it_beside_its_gpu(root, tmp_path):
    proc = tmp_path / "proc"
    for minor, instance, first in ((0, 1, 30), (0, 2, 33), (3, 1, 165)):
        folder = proc / f"driver/nvidia/capabilities/gpu{minor}/mig/gi{instance}"
        (folder / "ci0").mkdir(parents=True)
        (folder / "access").write_text(f"DeviceFileMinor: {first}\n")
        (folder / "ci0/access").write_text(f"DeviceFileMinor: {first + 1}\n")
    (proc / "devices").write_text("Character devices:\n239 nvidia-caps\n")
    driver = tree(root, proc=proc)
    files = driver.files(
        (gpu(0), gpu(3)), (partition_at(0, 2, "MIG-a"), partition_at(3, 1, "MIG-b"))
    )
    assert {uuid: [n.minor for n in nodes] for uuid, nodes in files.capabilities.items()} == {
        "MIG-a": [33, 34],
        "MIG-b": [165, 166],
    }
    assert {n.major for nodes in files.capabilities.values() for n in nodes} == {239}
    assert files.capabilities["MIG-a"][0].host_path == f"{HOST}/dev/nvidia-caps/nvidia-cap33"
    assert files.gpus.keys() == {gpu(0).uuid, gpu(3).uuid}
    assert driver.files((gpu(0),)).capabilities == {}
    with pytest.raises(StateError, match="gpu0/mig/gi9"):
        driver.files((gpu(0),), (partition_at(0, 9, "MIG-c"),))
