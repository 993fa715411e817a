"""What of a GPU is published, and how its values are made to fit the API."""

from dataclasses import replace

import pytest

from api.resource.limits import problems
from api.resource.types import Number, Text, Version
from driver.core.choices import Choices
from driver.core.devices import MigPartition, clamp, describe, semantic_version
from driver.core.errors import ConfigError
from driver.core.inventory import build_inventory
from driver.core.live import live_state, withholding_taints
from driver.core.modes import Mode, Rule
from driver.core.pools import build_pool
from driver.core.snapshot import DriverFacts, LostGpu, MigState, PciAddress
from tests.data.mig_boards import H100
from tests.unit.core.given import DRIVER, FACTS, NODE, cut, gpu, snapshot, uuid


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


def test_profiles_of_a_gpu_that_is_lost_are_no_mistake_and_those_of_no_gpu_are() -> None:
    listed = Choices(profiles=("1g.5gb", "1g.10gb"))
    here = snapshot(cut(0))
    with pytest.raises(ConfigError, match=r"'1g\.5gb' is listed, but no GPU of this node has it"):
        build_inventory(here, listed)
    lost = replace(here, lost=(LostGpu(where="GPU 1", reason="fallen off the bus"),))
    inventory = build_inventory(lost, listed)
    assert inventory.unfound == ("1g.5gb",)
    assert [d.profile.name for d in inventory.devices.values() if isinstance(d, MigPartition)] == [
        "1g.10gb"
    ] * 7


@pytest.mark.parametrize("rules", [(), (Rule(mode=Mode.DYNAMIC, product="H100"),)])
@pytest.mark.parametrize(("enabled", "offered"), [(True, 0), (False, 1)])
def test_a_gpu_whose_partitions_cannot_be_read_costs_no_other_and_is_whole_at_most(
    rules: tuple[Rule, ...], enabled: bool, offered: int
) -> None:
    blind = cut(0, geometry=None, unread="Unknown Error", enabled=enabled, pending=enabled)
    inventory = build_inventory(
        snapshot(blind, cut(1)), Choices(rules=rules, profiles=("1g.5gb", "1g.10gb"))
    )
    mine = [name for name, d in inventory.devices.items() if d.gpu.uuid == uuid(0)]
    assert mine == ["gpu-00000000"]
    live = live_state(inventory, (), (), ())
    taints = withholding_taints(inventory, live, (), Choices(), driver=DRIVER)
    assert len([name for name in mine if name not in taints]) == offered
    assert "MIG cannot be read: Unknown Error" in inventory.refused[uuid(0)]
    assert len(inventory.devices) == 1 + 8
    assert list(problems(build_pool(inventory, driver=DRIVER, node=NODE))) == []


@pytest.mark.parametrize("mode", [Mode.DYNAMIC, Mode.STATIC])
def test_a_gpu_that_stays_in_mig_mode_and_cannot_be_read_publishes_nothing(mode: Mode) -> None:
    blind = cut(
        0, geometry=None, unread="Unknown Error", enabled=True, pending=True, switchable=False
    )
    rules = (Rule(mode=mode, index=0),)
    inventory = build_inventory(snapshot(blind, gpu(1)), Choices(rules=rules))
    assert [*inventory.devices] == ["gpu-00000001"]
    assert "Unknown Error" in inventory.modes[uuid(0)].withheld_reason
    assert list(problems(build_pool(inventory, driver=DRIVER, node=NODE))) == []


def test_a_board_that_offers_no_partition_has_no_counters() -> None:
    whole = gpu(0, mig=MigState(capable=True, switchable=True, geometry=H100))
    inventory = build_inventory(snapshot(whole), Choices(profiles=()))
    assert [*inventory.devices] == ["gpu-00000000"]
    assert not inventory.counters
    assert list(problems(build_pool(inventory, driver=DRIVER, node=NODE))) == []
