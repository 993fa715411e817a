"""The poll where the driver as a whole fails, hangs or is let go of."""

from __future__ import annotations

import threading
import time

import pytest

from tests.nvml.monitor import Monitor


@pytest.fixture
def monitor(make_node):
    return Monitor(make_node("h100x2"))


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
