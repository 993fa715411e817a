"""What of a GPU is published, and how its values are made to fit the API."""

import pytest

from api.resource.limits import problems
from api.resource.types import Number, Text, Version
from driver.core.choices import Choices
from driver.core.devices import clamp, describe, semantic_version
from driver.core.inventory import build_inventory
from driver.core.pools import build_pool
from driver.core.snapshot import DriverFacts, MigState, PciAddress
from tests.data.mig_boards import H100
from tests.unit.core.given import DRIVER, FACTS, NODE, gpu, snapshot, uuid


def test_devices_are_ordered_by_address_whatever_the_index_says():
    here = snapshot(
        gpu(1, index=0, pci=PciAddress(domain=1, bus=0, device=0)),
        gpu(2, index=1, pci=PciAddress(domain=0, bus=0xC1, device=0)),
        gpu(3, index=2, pci=PciAddress(domain=0, bus=0x0F, device=0)),
    )
    inventory = build_inventory(here)
    assert list(inventory.devices) == ["gpu-00000003", "gpu-00000002", "gpu-00000001"]
    assert inventory.gpu_uuids() == {uuid(1), uuid(2), uuid(3)}
    assert inventory.driver == FACTS


def test_a_gpu_is_described_in_full():
    facts = gpu(
        0x3B,
        brand="Nvidia",
        architecture="Hopper",
        compute_capability=(9, 0),
        serial="1650523",
        numa_node=1,
        pcie_root="pci0000:3a",
        addressing_mode="HMM",
        nvlink_domain="fabric-1",
    )
    (device,) = build_inventory(snapshot(facts)).devices.values()
    described = describe(device, FACTS)
    assert described.name == "gpu-0000003b"
    assert described.capacity == (("memory", 80 * 2**30),)
    assert dict(described.attributes) == {
        "type": Text("gpu"),
        "uuid": Text("GPU-0000003b-0000-4000-8000-00000000003b"),
        "productName": Text("NVIDIA H100 80GB HBM3"),
        "brand": Text("Nvidia"),
        "architecture": Text("Hopper"),
        "addressingMode": Text("HMM"),
        "nvlinkDomain": Text("fabric-1"),
        "driverVersion": Version("580.95.5"),
        "cudaDriverVersion": Version("13.0.0"),
        "cudaComputeCapability": Version("9.0.0"),
        "resource.kubernetes.io/pciBusID": Text("0000:3b:00.0"),
        "resource.kubernetes.io/pcieRoot": Text("pci0000:3a"),
        "resource.kubernetes.io/numaNode": Number(1),
    }


def test_what_a_board_or_a_driver_does_not_tell_is_left_out():
    (device,) = build_inventory(snapshot(gpu(1, numa_node=-1))).devices.values()
    described = describe(device, DriverFacts(driver="unknown"))
    assert {name for name, _ in described.attributes} == {
        "type",
        "uuid",
        "productName",
        "resource.kubernetes.io/pciBusID",
    }


def test_numa_node_zero_is_a_node():
    (device,) = build_inventory(snapshot(gpu(1, numa_node=0))).devices.values()
    attributes = dict(describe(device, FACTS).attributes)
    assert attributes["resource.kubernetes.io/numaNode"] == Number(0)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("535.104.05", "535.104.5"),
        ("12.4", "12.4.0"),
        ("580", "580.0.0"),
        ("580.95.05.01", "580.95.5"),
        ("470.57.02-rc1", "470.57.2"),
        ("", None),
        ("r580", None),
        ("9" * 70, None),
    ],
)
def test_a_version_is_made_semantic_or_left_out(text, version):
    assert semantic_version(text) == version


@pytest.mark.parametrize(
    ("text", "fits"),
    [("a" * 64, "a" * 64), ("a" * 65, "a" * 64), ("a" + "é" * 32, "a" + "é" * 31), ("", "")],
)
def test_a_text_is_cut_to_64_bytes_between_characters(text, fits):
    assert clamp(text) == fits


def test_a_gpu_in_mig_mode_is_no_whole_gpu() -> None:
    inventory = build_inventory(snapshot(gpu(0, mig=MigState(capable=True, enabled=True)), gpu(1)))
    assert [d.gpu.index for d in inventory.devices.values()] == [1]


def test_a_board_that_offers_no_partition_has_no_counters() -> None:
    whole = gpu(0, mig=MigState(capable=True, switchable=True, geometry=H100))
    inventory = build_inventory(snapshot(whole), Choices(profiles=()))
    assert [*inventory.devices] == ["gpu-00000000"]
    assert not inventory.counters
    assert list(problems(build_pool(inventory, driver=DRIVER, node=NODE))) == []
