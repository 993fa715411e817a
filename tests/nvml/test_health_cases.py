"""The poll over NVML in the cases of public reports."""

from __future__ import annotations

import pytest

from driver.core.health.signals import Need
from driver.core.ids import GpuUuid
from driver.core.snapshot import PciAddress
from hack.simnvml.kit import Machine
from tests.nvml.monitor import Monitor


def pci(machine: Machine, slot: int) -> PciAddress:
    gpu = machine.gpu(slot)
    return PciAddress(
        domain=gpu.number("domain"), bus=gpu.number("bus"), device=gpu.number("device")
    )


@pytest.fixture
def monitor(make_node):
    return Monitor(make_node("h100x2"))


def test_d10_an_advice_from_before_our_start_is_told_by_the_first_look(monitor) -> None:
    gpu = monitor.node.machine.gpu(1)
    gpu.set(recovery_action=1)
    assert monitor.look().faults(gpu.uuid) == {"recovery-action": Need.RESET}


def test_d26_an_advice_that_changes_silently_is_found_by_the_next_look(monitor) -> None:
    gpu = monitor.node.machine.gpu(0)
    assert monitor.look().faults(gpu.uuid) == {}
    gpu.set(recovery_action=4)
    assert monitor.look().faults(gpu.uuid) == {"recovery-action": Need.RESET}
    gpu.reset()
    seen = monitor.look()
    assert seen.faults(gpu.uuid) == {}
    assert seen.resets() == [gpu.uuid]


def test_d19_all_links_down_on_a_switched_board_is_a_fault_and_a_card_without_is_not(
    make_node,
) -> None:
    board = Monitor(make_node("h100x2"))
    gpu = board.node.machine.gpu(0)
    gpu.set(nvlink_up=0)
    seen = board.look()
    assert seen.faults(gpu.uuid) == {"nvlink-down": Need.RESET}
    assert "18 of 18" in seen.detail("nvlink-down")
    board.node.library.close()
    card = Monitor(make_node(["l40s"]))
    seen = card.look()
    (uuid,) = [g.uuid for g in card.node.machine.gpus]
    assert seen.faults(uuid) == {}
    assert "nvlink-down" not in seen.well(uuid)


def test_a_link_without_a_switch_is_missed_only_if_it_was_up_before(make_node) -> None:
    monitor = Monitor(make_node("h100x2"))
    bridged, bare = (monitor.node.machine.gpu(slot) for slot in range(2))
    bridged.set(fabric_state=None)
    bare.set(fabric_state=None, nvlink_up=0)
    assert monitor.look().faults(bare.uuid) == {}
    bridged.set(nvlink_up=0x3FFFE)
    seen = monitor.look()
    assert seen.faults(bridged.uuid) == {"nvlink-down": Need.WATCH}
    assert seen.faults(bare.uuid) == {}


def test_d20_gpus_that_are_not_counted_are_named_with_their_uuid(make_node) -> None:
    monitor = Monitor(make_node("dgx-h100"))
    machine = monitor.node.machine
    monitor.bus = tuple(pci(machine, slot) for slot in range(8))
    assert monitor.look().faults() == {}
    gone = machine.gpu(3)
    gone.unplug()
    seen = monitor.look()
    assert seen.faults(gone.uuid).keys() <= {"gpu-missing", "gpu-lost"}
    assert seen.faults(gone.uuid)
    for slot in range(8):
        machine.gpu(slot).unplug()
    seen = monitor.look()
    assert all(seen.faults(machine.gpu(slot).uuid) for slot in range(8))
    for slot in range(8):
        machine.gpu(slot).plug()
    seen = monitor.look()
    assert sorted(seen.resets()) == sorted(machine.gpu(slot).uuid for slot in range(8))
    assert "gpu-missing" in seen.well(gone.uuid)


def test_d20_a_gpu_that_was_missing_at_our_start_is_missed_if_it_was_published(make_node) -> None:
    monitor = Monitor(make_node("h100x2"))
    machine = monitor.node.machine
    gone = machine.gpu(1)
    monitor.published = {GpuUuid(gone.uuid): pci(machine, 1)}
    gone.unplug()
    assert monitor.look().faults(gone.uuid)


def test_a_gpu_whose_place_another_one_has_is_not_missed(make_node) -> None:
    monitor = Monitor(make_node("h100x2"))
    replaced = GpuUuid("GPU-replaced")
    monitor.published = {replaced: pci(monitor.node.machine, 1)}
    assert monitor.look().faults(replaced) == {}


def test_a_gpu_on_the_bus_that_nvml_never_counted_is_shown(make_node) -> None:
    monitor = Monitor(make_node("h100x2"))
    monitor.bus = (PciAddress(domain=0, bus=0x77, device=0),)
    seen = monitor.look()
    assert seen.faults() == {"gpu-not-counted": Need.WATCH}
    assert "0000:77:00.0" in seen.detail("gpu-not-counted")


def test_d21_a_row_that_could_not_be_replaced_is_for_an_operator(monitor) -> None:
    gpu = monitor.node.machine.gpu(0)
    gpu.set(remap_failed=1)
    assert monitor.look().faults(gpu.uuid) == {"row-remap-failure": Need.OPERATOR}


def test_a_failed_recovery_of_nvlink_5_is_read_of_each_link(make_node) -> None:
    monitor = Monitor(make_node(["b200"]))
    gpu = monitor.node.machine.gpu(0)
    gpu.field_value(214, 3)
    assert monitor.look().faults(gpu.uuid) == {}
    gpu.field_value(214, 4)
    assert monitor.look().faults(gpu.uuid) == {"nvlink-recovery": Need.WATCH}


def test_d22_errors_on_links_count_by_rate_and_not_by_lifetime(monitor) -> None:
    gpu = monitor.node.machine.gpu(0)
    counters = [0] * 18 * 5
    counters[2] = 1_000_000
    gpu.set(nvlink_errors=counters)
    assert monitor.look().faults(gpu.uuid) == {}
    assert monitor.look().faults(gpu.uuid) == {}
    counters[2] += 200 * 5
    gpu.set(nvlink_errors=counters)
    assert monitor.look(after=5).faults(gpu.uuid) == {"nvlink-errors": Need.WATCH}
    assert "nvlink-errors" in monitor.look().well(gpu.uuid)


@pytest.mark.parametrize("symbol", ["nvmlDeviceGetRemappedRows", "nvmlDeviceGetFieldValues"])
def test_d27_reset_required_from_any_getter_is_a_fault_of_that_gpu(monitor, symbol) -> None:
    gpu = monitor.node.machine.gpu(0)
    with monitor.node.machine.rule(symbol, ret=16, gpu=0):
        assert monitor.look().faults(gpu.uuid) == {"reset-required": Need.RESET}
    seen = monitor.look()
    assert seen.faults(gpu.uuid) == {}
    assert seen.resets() == [gpu.uuid]


def test_a_lost_gpu_is_lost_and_the_others_go_on(monitor) -> None:
    lost, other = (monitor.node.machine.gpu(slot) for slot in range(2))
    monitor.look()
    lost.lose()
    seen = monitor.look()
    assert seen.faults(lost.uuid) == {"gpu-lost": Need.RESET}
    assert "recovery-action" in seen.well(other.uuid)
    assert monitor.remade == 2


def test_memory_of_a_lost_tenant_is_told_when_nobody_has_the_gpu(monitor) -> None:
    gpu = monitor.node.machine.gpu(0)
    gpu.set(mem_used=8 << 30)
    monitor.held.add(gpu.uuid)
    for _ in range(3):
        assert monitor.look(after=60).faults(gpu.uuid) == {}
    monitor.held.clear()
    assert monitor.look().faults(gpu.uuid) == {}
    assert monitor.look(after=60).faults(gpu.uuid) == {"memory-leftover": Need.WATCH}
    gpu.process(4711, 8 << 30)
    assert "memory-leftover" in monitor.look().well(gpu.uuid)
