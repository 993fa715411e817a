"""The poll over the simulator with the real binding: fault in, signal out; gone, well again."""

from __future__ import annotations

import pytest

from driver.core.health.signals import Need
from tests.nvml.monitor import Monitor

NOT_ON_MIG = {"row-remap-failure", "row-remap-pending", "nvlink-down"}


@pytest.fixture
def monitor(make_node):
    return Monitor(make_node("h100x2"))


def test_a_healthy_machine_has_no_fault_and_says_what_is_in_order(monitor) -> None:
    seen = monitor.look()
    first = monitor.node.machine.gpu(0).uuid
    assert seen.faults() == seen.faults(first) == {}
    assert not seen.unknown() | seen.unknown(first)
    assert seen.well() >= {"nvml", "nvml-hangs", "nvml-released", "gpu-not-counted"}
    assert seen.well(first) >= {
        *("recovery-action", "ecc-uncorrected", "sram-threshold", "inforom-corrupt", "pcie-link"),
        *("row-remap-failure", "row-remap-pending", "nvlink-down", "fabric-state", "gpu-lost"),
        *("fabric-health", "mig-mode-pending", "memory-leftover"),
    }
    assert "repair-pending" not in seen.well(first)  # Hopper does not have it
    assert "page-retirement" not in seen.well(first)


@pytest.mark.parametrize(
    ("broken", "mended", "name", "need"),
    [
        ({"recovery_action": 1}, {"recovery_action": 0}, "recovery-action", Need.RESET),
        ({"recovery_action": 2}, {"recovery_action": 0}, "recovery-action", Need.REBOOT),
        ({"recovery_action": 3}, {"recovery_action": 0}, "recovery-action", Need.WATCH),
        ({"remap_failed": 1}, {"remap_failed": 0}, "row-remap-failure", Need.OPERATOR),
        ({"remap_pending": 1}, {"remap_pending": 0}, "row-remap-pending", Need.WATCH),
        ({"sram_threshold_exceeded": 1}, {"sram_threshold_exceeded": 0}, "sram-threshold",
         Need.OPERATOR),
        ({"retired_pages": 16}, {"retired_pages": 2}, "page-retirement", Need.WATCH),
        ({"retired_pages": 63}, {"retired_pages": 2}, "page-retirement", Need.OPERATOR),
        ({"retired_pages": 1, "retired_pending": 1}, {"retired_pending": 0},
         "page-retirement-pending", Need.WATCH),
        ({"unrepairable": 1}, {"unrepairable": 0}, "unrepairable-memory", Need.OPERATOR),
        ({"inforom_corrupt": 1}, {"inforom_corrupt": 0}, "inforom-corrupt", Need.RESET),
        ({"nvlink_up": 0}, {"nvlink_up": 0x3FFFF}, "nvlink-down", Need.RESET),
        ({"fabric_summary": 2}, {"fabric_summary": 1}, "fabric-health", Need.RESET),
        ({"fabric_summary": 3}, {"fabric_summary": 1}, "fabric-health", Need.WATCH),
        ({"fabric_health": 5 << 8}, {"fabric_health": 1 << 8}, "fabric-health", Need.OPERATOR),
        ({"util_gpu": 90, "pcie_width": 8}, {"pcie_width": 16}, "pcie-link", Need.WATCH),
        ({"mig_pending": 1}, {"mig_pending": 0}, "mig-mode-pending", Need.WATCH),
    ],
)  # fmt: skip
def test_each_state_is_told_while_it_lasts_and_as_well_after(
    make_node, broken, mended, name, need
) -> None:
    monitor = Monitor(make_node("h100x2", driver="610.43.02"))
    sick, other = (monitor.node.machine.gpu(slot) for slot in range(2))
    sick.set(**broken)
    seen = monitor.look()
    assert seen.faults(sick.uuid) == {name: need}
    assert seen.faults(other.uuid) == {}
    sick.set(**mended)
    after = monitor.look()
    assert after.faults(sick.uuid) == {}
    assert name in after.well(sick.uuid)


@pytest.mark.parametrize(
    ("field", "names"),
    [
        ("recovery_action", {"recovery-action"}),
        ("ecc_errors", {"ecc-uncorrected"}),
        ("sram", {"sram-threshold"}),
        ("remap_pending", {"row-remap-failure", "row-remap-pending"}),
        ("fabric_state", {"fabric-health"}),
        ("mem_total", {"memory-leftover"}),
    ],
)
def test_what_a_board_does_not_have_says_nothing(monitor, field, names) -> None:
    gpu = monitor.node.machine.gpu(0)
    gpu.set(**{field: None})
    seen = monitor.look()
    told = seen.well(gpu.uuid) | seen.unknown(gpu.uuid) | seen.faults(gpu.uuid).keys()
    assert not names & told


def test_a_getter_that_fails_is_cannot_tell_of_that_alone(monitor) -> None:
    gpu = monitor.node.machine.gpu(0)
    with monitor.node.machine.rule("nvmlDeviceGetRemappedRows", ret=999, gpu=0):
        seen = monitor.look()
    assert seen.unknown(gpu.uuid) == {"row-remap-unread"}
    assert "recovery-action" in seen.well(gpu.uuid)
    after = monitor.look()
    assert not after.unknown(gpu.uuid)
    assert "row-remap-unread" in after.well(gpu.uuid)


def test_blackwell_tells_a_pending_repair(make_node) -> None:
    monitor = Monitor(make_node(["b200"]))
    gpu = monitor.node.machine.gpu(0)
    assert "repair-pending" in monitor.look().well(gpu.uuid)
    gpu.set(repair_tpc=1)
    assert monitor.look().faults(gpu.uuid) == {"repair-pending": Need.WATCH}


def test_remapped_rows_do_not_apply_while_instances_are_there(make_node) -> None:
    monitor = Monitor(make_node("h100x2"))
    node = monitor.node
    gpu = node.snapshot().gpus[0]
    node.partitions.set_mode(gpu.uuid, on=True)
    assert gpu.mig.geometry is not None
    profile = gpu.mig.geometry.profiles[0]
    node.partitions.create(gpu.uuid, profile, profile.placements[0])
    seen = monitor.look()
    told = seen.well(gpu.uuid) | seen.unknown(gpu.uuid) | seen.faults(gpu.uuid).keys()
    assert not NOT_ON_MIG & told
    assert "recovery-action" in told
