"""Events of the simulator through the real binding: what is told, and what ends the listening."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from driver.core.health.items import RELEASED
from driver.core.health.signals import CannotTell, Fault, Need, Signal, Source, Well
from driver.nvml.events import NvmlEvents
from driver.plugin.supervise import Wakeup
from driver.ports.health import XidSeen
from tests.nvml.conftest import Node

WAIT = "nvmlEventSetWait_v2"
REGISTER = "nvmlDeviceRegisterEvents"


class Listener:
    def __init__(self, node: Node, hang_after: float = 10.0) -> None:
        self.node = node
        self.signals: queue.Queue[Signal] = queue.Queue()
        self.xids: queue.Queue[XidSeen] = queue.Queue()
        self.looks = threading.Event()
        self.returned = threading.Event()
        self.mig = threading.Event()
        self._stop = threading.Event()
        self._alarm = Wakeup()
        self.events = NvmlEvents(
            node.library,
            sink=self._hear,
            on_xid=self.xids.put,
            alarm=self._alarm,
            look_soon=self.looks.set,
            on_mig_change=self.mig.set,
            hang_after=hang_after,
        )
        self._thread = threading.Thread(target=self.events.run, args=(self._stop,), daemon=True)

    def start(self) -> Listener:
        self._thread.start()
        self.node.machine.wait_calls(WAIT, 1)
        return self

    def end(self) -> None:
        self._stop.set()
        self._alarm.wake()
        self._thread.join(10)
        assert not self._thread.is_alive()

    def _hear(self, *signals: Signal) -> None:
        """That NVML is not let go of is told beside each `nvml-events`, and asked for where it
        matters.
        """
        for signal in signals:
            if isinstance(signal, Well) and signal.name == RELEASED:
                self.returned.set()
            else:
                self.signals.put(signal)

    def signal(self, wanted: type[Signal]) -> Fault | CannotTell | Well:
        while True:
            got = self.signals.get(timeout=5)
            if isinstance(got, wanted):
                assert isinstance(got, Fault | CannotTell | Well)
                return got


@pytest.fixture
def listen(make_node) -> Iterator[Callable[..., Listener]]:
    made: list[Listener] = []

    def make(preset: str = "h100x2", hang_after: float = 10.0, **options) -> Listener:
        made.append(Listener(make_node(preset, **options), hang_after).start())
        return made[-1]

    yield make
    for each in made:
        each.node.machine.clear_rules()
        each.end()


def test_an_xid_is_handed_on_with_its_gpu_and_instances(listen) -> None:
    listener = listen()
    gpu = listener.node.machine.gpu(1)
    gpu.xid(79)
    whole = listener.xids.get(timeout=5)
    assert (whole.gpu, whole.code, whole.gi, whole.ci) == (gpu.uuid, 79, None, None)
    gpu.xid(43, gi=3, ci=0)
    part = listener.xids.get(timeout=5)
    assert (part.code, part.gi, part.ci) == (43, 3, 0)
    assert listener.looks.wait(5)


def test_an_xid_arrives_before_the_wait_is_over(listen, monkeypatch) -> None:
    monkeypatch.setattr("driver.nvml.events._SLICE_MS", 4000)
    listener = listen()
    began = time.monotonic()
    listener.node.machine.gpu(0).xid(48)
    listener.xids.get(timeout=5)
    assert time.monotonic() - began < 3


def test_a_new_recovery_action_says_what_the_poll_would_say(listen) -> None:
    listener = listen(driver="610.43.02")
    gpu = listener.node.machine.gpu(0)
    gpu.recovery(1)
    fault = listener.signal(Fault)
    assert isinstance(fault, Fault)
    assert (fault.source, fault.name, fault.need) == (Source.POLL, "recovery-action", Need.RESET)
    assert fault.scope.gpu == gpu.uuid
    gpu.recovery(0)
    assert listener.signal(Well).name == "recovery-action"


def test_a_change_of_partitions_is_told_to_who_wants_it(listen) -> None:
    listener = listen()
    listener.node.machine.gpu(0).event(0x100)
    assert listener.mig.wait(5)


def test_only_what_a_board_can_tell_is_asked_for(listen) -> None:
    listener = listen()
    gpu = listener.node.machine.gpu(0)
    gpu.set(event_types=0x8)
    listener.events.remake()
    listener.node.machine.wait_calls(REGISTER, 4)
    gpu.xid(31)
    assert listener.xids.get(timeout=5).code == 31
    assert listener.signal(Well).name == "nvml-events"
    assert listener.signals.empty()


def test_boards_that_tell_nothing_are_no_trouble(make_node) -> None:
    node = make_node("h100x2")
    for gpu in node.machine.gpus:
        gpu.set(event_types=0)
    listener = Listener(node)
    listener._thread.start()
    assert listener.signal(Well).name == "nvml-events"
    node.machine.wait_calls("nvmlSystemGetDriverVersion", 1)
    assert node.machine.calls(WAIT) == 0
    listener.end()


def test_a_flood_is_taken_in_bursts_and_none_is_missed(listen) -> None:
    listener = listen()
    for code in range(500):
        listener.node.machine.gpu(0).xid(code)
    assert [listener.xids.get(timeout=5).code for _ in range(500)] == list(range(500))


def test_a_lost_gpu_is_left_out_and_the_others_are_heard(listen) -> None:
    listener = listen()
    machine = listener.node.machine
    machine.gpu(0).lose()
    assert listener.signal(CannotTell).name == "nvml-events"
    assert listener.looks.wait(5)
    assert listener.signal(Well).name == "nvml-events"
    machine.gpu(1).xid(31)
    assert listener.xids.get(timeout=5).gpu == machine.gpu(1).uuid


def test_a_gpu_that_answers_again_is_heard_again(listen) -> None:
    listener = listen()
    machine = listener.node.machine
    machine.gpu(0).lose()
    listener.signal(CannotTell)
    listener.signal(Well)
    registered = machine.calls(REGISTER)
    machine.gpu(0).reset()
    listener.events.remake()
    machine.wait_calls(REGISTER, registered + 2)
    machine.gpu(0).xid(13)
    assert listener.xids.get(timeout=5).gpu == machine.gpu(0).uuid


def test_a_closed_library_is_opened_again_and_listened_to(listen) -> None:
    listener = listen()
    machine = listener.node.machine
    waited = machine.calls(WAIT)
    listener.node.library.close()
    machine.wait_calls(REGISTER, 4)
    machine.wait_calls(WAIT, waited + 1)
    machine.gpu(0).xid(31)
    assert listener.xids.get(timeout=5).code == 31


def test_a_lasting_error_is_tried_with_growing_pauses_and_not_in_a_hot_loop(listen) -> None:
    listener = listen()
    machine = listener.node.machine
    with machine.rule(WAIT, ret=999):
        listener.signal(CannotTell)
        before = machine.calls(WAIT)
        threading.Event().wait(1.2)
        assert machine.calls(WAIT) - before <= 2
    assert listener.signal(Well).name == "nvml-events"


def test_m7_nothing_is_inside_the_library_during_a_release(listen) -> None:
    listener = listen()
    node = listener.node
    began = time.monotonic()
    node.library.release(60)
    assert time.monotonic() - began < 1
    assert not node.mapped()
    told = listener.signal(CannotTell)
    assert (told.name, "let go of until" in told.detail) == (RELEASED, True)
    assert not node.mapped()
    listener.returned.clear()
    node.library.resume()
    listener.events.remake()
    assert listener.signal(Well).name == "nvml-events"
    assert listener.returned.wait(5)


def test_m1_a_wait_that_hangs_is_given_up_once_and_heard_again_when_it_returns(listen) -> None:
    listener = listen(hang_after=0.1)
    machine = listener.node.machine
    threads = threading.active_count()
    machine.rule(WAIT, delay_ms=2000, times=1)
    assert "not returned" in str(listener.signal(CannotTell).detail)
    assert threading.active_count() <= threads + 1
    assert listener.signal(Well).name == "nvml-events"
    machine.gpu(0).xid(31)
    assert listener.xids.get(timeout=5).code == 31


def test_closing_at_the_end_leaves_no_thread_in_the_library(listen) -> None:
    listener = listen()
    listener.end()
    listener.node.library.close()
    assert not listener.node.mapped()
