import pytest

from driver.core.errors import StateError
from driver.core.snapshot import PciAddress
from driver.state.sysfs import boot_id, numa_node, parse_address, pci_gpus, pcie_root

GPU = PciAddress(domain=0, bus=0x3B, device=0)


def device(sys, path: str, *, vendor="0x10de", kind="0x030200", numa="0"):
    """As the kernel lays it out: the device under its bridges, and a link by address."""
    real = sys / "devices" / path
    real.mkdir(parents=True)
    for name, value in (("vendor", vendor), ("class", kind), ("numa_node", numa)):
        (real / name).write_text(f"{value}\n")
    links = sys / "bus/pci/devices"
    links.mkdir(parents=True, exist_ok=True)
    (links / real.name).symlink_to(f"../../../devices/{path}")
    return real


def test_gpus_are_counted_by_vendor_and_class_in_order_of_address(tmp_path):
    device(tmp_path, "pci0000:c0/0000:c0:01.0/0000:c1:00.0", kind="0x030000")
    device(tmp_path, "pci0000:3a/0000:3a:00.0/0000:3b:00.0")
    device(tmp_path, "pci0000:3a/0000:3a:01.0/0000:3c:00.0", kind="0x068000")  # an NVSwitch
    device(tmp_path, "pci0000:00/0000:00:02.0", vendor="0x1a03", kind="0x030000")
    assert pci_gpus(tmp_path) == (GPU, PciAddress(domain=0, bus=0xC1, device=0))


def test_virtual_functions_and_gpus_of_another_kernel_driver_are_left_out(tmp_path):
    ours = device(tmp_path, "pci0000:3a/0000:3b:00.0")
    (ours / "driver").symlink_to("../../../bus/pci/drivers/nvidia")
    passed_through = device(tmp_path, "pci0000:3a/0000:3d:00.0")
    (passed_through / "driver").symlink_to("../../../bus/pci/drivers/vfio-pci")
    virtual = device(tmp_path, "pci0000:3a/0000:3b:00.4")
    (virtual / "physfn").symlink_to("../0000:3b:00.0")
    assert pci_gpus(tmp_path) == (GPU,)


def test_a_bus_that_cannot_be_listed_is_an_error(tmp_path):
    with pytest.raises(StateError, match=r"cannot list PCI devices in .*bus/pci/devices"):
        pci_gpus(tmp_path)


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("pci0000:3a/0000:3a:00.0/0000:3b:00.0", "pci0000:3a"),
        ("platform/host/pci0000:3a/0000:3b:00.0", None),
        ("pci10000:3a/0000:3b:00.0", "pci10000:3a"),
    ],
)
def test_the_root_is_the_first_element_after_devices(tmp_path, path, root):
    device(tmp_path, path)
    assert pcie_root(tmp_path, GPU) == root


def test_a_link_that_ends_in_another_device_has_no_root(tmp_path):
    links = tmp_path / "bus/pci/devices"
    links.mkdir(parents=True)
    (links / "0000:3b:00.0").symlink_to("../../../devices/pci0000:3a/0000:99:00.0")
    assert pcie_root(tmp_path, GPU) is None
    assert pcie_root(tmp_path / "none", GPU) is None


@pytest.mark.parametrize(("text", "node"), [("1", 1), ("0", 0), ("-1", None), ("", None)])
def test_a_machine_without_numa_nodes_has_none(tmp_path, text, node):
    device(tmp_path, "pci0000:3a/0000:3b:00.0", numa=text)
    assert numa_node(tmp_path, GPU) == node
    assert numa_node(tmp_path / "none", GPU) is None


@pytest.mark.parametrize("text", ["0000:3b:00.0", "10000:e1:1f.7"])
def test_addresses_are_read_as_they_are_written(text):
    assert str(parse_address(text)) == text


@pytest.mark.parametrize("text", ["", "3b:00.0", "0000:3b:00.8", "0000:3b:00.0\n"])
def test_what_is_no_address_is_none(text):
    assert parse_address(text) is None


def test_the_boot_id_is_read_without_its_line_end(tmp_path):
    folder = tmp_path / "sys/kernel/random"
    folder.mkdir(parents=True)
    with pytest.raises(StateError, match="cannot read the boot id"):
        boot_id(tmp_path)
    (folder / "boot_id").write_text("\n")
    with pytest.raises(StateError, match="proc_root"):
        boot_id(tmp_path)
    (folder / "boot_id").write_text("0c5a\n")
    assert boot_id(tmp_path) == "0c5a"
