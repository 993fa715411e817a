"""How often the poll looks, at what, and how it ends."""

from __future__ import annotations

import queue
import threading
import time

import pytest

from driver.core.health.signals import Fault, Need, Signal
from driver.nvml.health import Around, NvmlPoll
from driver.plugin.supervise import Wakeup
from tests.nvml.monitor import Monitor, Seen


@pytest.fixture
def monitor(make_node):
    return Monitor(make_node("h100x2"))


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
