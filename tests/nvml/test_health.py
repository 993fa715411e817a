"""The poll over the simulator with the real binding: fault in, signal out; gone, well again."""

from __future__ import annotations

import queue
import threading
import time

import pytest

from driver.core.health.signals import Fault, Need, Signal
from driver.core.ids import GpuUuid
from driver.core.snapshot import PciAddress
from driver.nvml.health import Around, NvmlPoll
from driver.plugin.supervise import Wakeup
from hack.simnvml.kit import Machine
from tests.nvml.monitor import Monitor, Seen

NOT_ON_MIG = {"row-remap-failure", "row-remap-pending", "nvlink-down"}


def pci(machine: Machine, slot: int) -> PciAddress:
    gpu = machine.gpu(slot)
    return PciAddress(
        domain=gpu.number("domain"), bus=gpu.number("bus"), device=gpu.number("device")
    )


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


# -- the cases of public reports


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


# -- the driver as a whole


def test_m3_nvml_that_comes_late_is_unknown_until_then_and_recovers_by_itself(monitor) -> None:
    machine = monitor.node.machine
    machine.driver_loaded(False)
    for _ in range(3):
        seen = monitor.look()
        assert seen.unknown() == {"nvml"}
        assert "not loaded" in seen.detail("nvml")
    machine.driver_loaded(True)
    assert "nvml" in monitor.look().well()


def test_a_version_mismatch_is_of_the_node(monitor) -> None:
    monitor.node.machine.set(version_mismatch=1)
    seen = monitor.look()
    assert seen.unknown() == {"nvml"}
    assert "different versions" in seen.detail("nvml")


def test_the_same_unknown_error_of_every_gpu_is_of_the_node(monitor) -> None:
    first, second = (monitor.node.machine.gpu(slot).uuid for slot in range(2))
    monitor.look()
    with monitor.node.machine.rule("nvmlDeviceGetHandleBy*", ret=999):
        seen = monitor.look()
    assert seen.unknown() == {"nvml"}
    assert not seen.unknown(first) | seen.unknown(second)


def test_an_unknown_error_of_one_gpu_is_its_own(monitor) -> None:
    gpu = monitor.node.machine.gpu(1)
    monitor.look()
    with monitor.node.machine.rule("nvmlDeviceGetHandleBy*", ret=999, gpu=1):
        seen = monitor.look()
    assert seen.unknown(gpu.uuid) == {"nvml"}
    assert "nvml" in seen.well()


# -- hangs, and letting go


def test_m1_a_look_that_hangs_is_told_and_the_next_leaves_that_gpu_out(make_node) -> None:
    monitor = Monitor(make_node("h100x2"), hang_after=0.1)
    stuck, other = (monitor.node.machine.gpu(slot) for slot in range(2))
    monitor.look()
    rule = monitor.node.machine.rule(
        "nvmlDeviceGetSramEccErrorStatus", gpu=0, delay_ms=1500, times=1
    )
    began = time.monotonic()
    seen = monitor.look()
    assert time.monotonic() - began < 1
    assert seen.unknown() == {"nvml-hangs"}
    assert stuck.uuid in seen.detail("nvml-hangs")
    seen = monitor.look()
    assert "nvml-hangs" in seen.well()
    assert seen.unknown(stuck.uuid) == {"nvml-hangs"}
    assert "recovery-action" in seen.well(other.uuid)
    rule.clear()
    deadline = time.monotonic() + 5
    while monitor.poll._watchdog.hanging and time.monotonic() < deadline:
        threading.Event().wait(0.05)
    seen = monitor.look()
    assert "nvml-hangs" in seen.well(stuck.uuid)
    assert "recovery-action" in seen.well(stuck.uuid)


def test_m1_the_number_of_threads_given_up_is_bounded(make_node) -> None:
    monitor = Monitor(make_node("h100x2"), hang_after=0.05)
    machine = monitor.node.machine
    machine.rule("nvmlDeviceGetCount*", delay_ms=1000)
    before = threading.active_count()
    for _ in range(6):
        assert monitor.look().unknown() == {"nvml-hangs"}
    assert threading.active_count() - before <= 2
    machine.clear_rules()


def test_m7_a_release_lets_go_of_the_library_refuses_calls_and_ends_by_itself(make_node) -> None:
    monitor = Monitor(make_node("h100x2"))
    node = monitor.node
    monitor.look()
    assert node.mapped()
    node.library.release(0.3)
    assert not node.mapped()
    seen = monitor.look()
    assert seen.unknown() == {"nvml-released"}
    assert not node.mapped()
    threading.Event().wait(0.35)
    seen = monitor.look()
    assert "nvml-released" in seen.well()
    assert node.mapped()


def test_m7_a_release_can_be_ended_early(make_node) -> None:
    monitor = Monitor(make_node("h100x2"))
    monitor.node.library.release(3600)
    assert monitor.look().unknown() == {"nvml-released"}
    monitor.node.library.resume()
    assert "nvml-released" in monitor.look().well()


# -- as it runs


def test_it_looks_at_once_then_by_its_period_and_ends_when_it_is_told_to(make_node) -> None:
    node = make_node("h100x2")
    said: queue.Queue[Signal] = queue.Queue()
    alarm, stop = Wakeup(), threading.Event()

    def hear(*signals: Signal) -> None:
        for each in signals:
            said.put(each)

    poll = NvmlPoll(
        node.library,
        around=Around(known=dict, bus=tuple, held=lambda _: True),
        sink=hear,
        alarm=alarm,
        period=60,
    )
    thread = threading.Thread(target=poll.run, args=(stop,), daemon=True)
    thread.start()
    said.get(timeout=5)
    node.machine.gpu(0).set(recovery_action=1)
    poll.look_soon()
    deadline = time.monotonic() + 5
    while not isinstance(got := said.get(timeout=5), Fault):
        assert time.monotonic() < deadline
    assert got.name == "recovery-action"
    stop.set()
    alarm.wake()
    thread.join(5)
    assert not thread.is_alive()


def test_a_flood_of_changes_asks_for_a_few_looks_a_second(make_node) -> None:
    node = make_node("h100x2")
    alarm, stop = Wakeup(), threading.Event()
    poll = NvmlPoll(
        node.library,
        around=Around(known=dict, bus=tuple, held=lambda _: True),
        sink=lambda *_: None,
        alarm=alarm,
    )
    thread = threading.Thread(target=poll.run, args=(stop,), daemon=True)
    thread.start()
    end = time.monotonic() + 1.1
    while time.monotonic() < end:
        poll.look_soon()
        threading.Event().wait(0.001)
    stop.set()
    alarm.wake()
    thread.join(5)
    assert 2 <= node.machine.calls("nvmlDeviceGetCount*") <= 6
    assert node.machine.calls("nvmlDeviceValidateInforom") == 2  # one whole look at two GPUs


def test_what_changes_slowly_is_left_out_of_a_small_look(monitor) -> None:
    gpu = monitor.node.machine.gpu(0)
    gpu.set(recovery_action=1, remap_failed=1)
    small = Seen(monitor.poll.look(whole=False))
    assert small.faults(gpu.uuid) == {"recovery-action": Need.RESET}
    told = small.well(gpu.uuid) | small.unknown(gpu.uuid)
    assert not {"row-remap-failure", "row-remap-unread"} & told
    assert monitor.look().faults(gpu.uuid).keys() == {"recovery-action", "row-remap-failure"}
