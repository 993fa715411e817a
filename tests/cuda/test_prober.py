"""Children that do not end, do not speak, or speak too much."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from driver.core.health.probe import (
    Crashed,
    Interrupted,
    Passed,
    ProbeTarget,
    Saturated,
    Unresponsive,
)
from driver.core.health.signals import Scope
from driver.core.ids import GpuUuid
from driver.cuda.prober import Limits
from driver.cuda.process import MOST_OUTPUT, ChildProcess, Ended
from hack.simcuda.testing import FOR_EVER_MS
from tests.cuda.conftest import open_files, target, zombies

PASSED = b'{"result": "passed", "seconds": 0.1}\n'


def gpu(name: str) -> ProbeTarget:
    return ProbeTarget(scope=Scope(gpu=GpuUuid(name)), uuid=name)


def script(code: str):
    """A child that runs `code` in place of the probe."""

    def start(command, environment):
        return ChildProcess([sys.executable, "-I", "-S", "-c", code], environment)

    return start


@dataclass(slots=True)
class Stuck:
    """A process in state D: no signal ends it, until the kernel lets it go."""

    gone: bool = False
    left: bool = False
    kills: int = 0
    pid: int = 0

    def wait(self, _seconds: float) -> Ended | None:
        return Ended(status=-9, output=b"", errors=b"") if self.gone else None

    def kill(self) -> None:
        self.kills += 1

    def leave(self) -> None:
        self.left = True

    def reap(self) -> bool:
        return self.gone


@dataclass(slots=True)
class Quick:
    """A process that passes."""

    pid: int = 0

    def wait(self, _seconds: float) -> Ended | None:
        return Ended(status=0, output=PASSED, errors=b"")

    def kill(self) -> None: ...
    def leave(self) -> None: ...
    def reap(self) -> bool:
        return True


@dataclass(slots=True)
class Starts:
    """Hands out children in order, healthy ones at the end."""

    children: list[Stuck]
    started: list[object] = field(default_factory=list)

    def __call__(self, _command, _environment):
        at = len(self.started)
        child = self.children[at] if at < len(self.children) else Quick()
        self.started.append(child)
        return child


def test_a_child_that_cannot_be_killed_is_left_and_counted_until_it_ends(node) -> None:
    stuck = [Stuck(), Stuck()]
    prober = node.make(start=Starts(stuck), deadline=0.01, grace=0.01)
    for count in (1, 2):
        assert prober.probe(gpu("A")) == Unresponsive(seconds=0.01, ended=False)
        assert prober.abandoned() == {"A": count}
    assert all(child.kills == 1 and child.left for child in stuck)
    refused = prober.probe(gpu("A"))
    assert refused == Saturated(detail="2 earlier probes of this GPU hang and cannot be killed")
    assert isinstance(prober.probe(gpu("B")), Passed)
    stuck[0].gone = stuck[1].gone = True
    assert isinstance(prober.probe(gpu("A")), Passed)
    assert prober.abandoned() == {}


def test_no_more_children_are_left_than_the_bound_whatever_the_gpus(node) -> None:
    stuck = [Stuck() for _ in range(4)]  # a fifth start would pass
    starts = Starts(stuck)
    prober = node.make(start=starts, deadline=0.01, grace=0.01, abandoned=4, parallel=3)
    with ThreadPoolExecutor(9) as pool:
        outcomes = list(pool.map(prober.probe, [gpu(f"G{i % 5}") for i in range(18)]))
    assert len(starts.started) == sum(prober.abandoned().values()) == 4
    assert sum(isinstance(outcome, Unresponsive) for outcome in outcomes) == 4
    saturated = [outcome for outcome in outcomes if isinstance(outcome, Saturated)]
    assert len(saturated) == 14
    assert "at most 4 may" in prober.probe(gpu("other")).detail
    for child in stuck:
        child.gone = True
    assert isinstance(prober.probe(gpu("other")), Passed)


def test_a_child_that_ignores_the_polite_signals_ends_all_the_same(node) -> None:
    code = (
        "import signal, time\n"
        "for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):\n"
        "    signal.signal(number, signal.SIG_IGN)\n"
        "while True: time.sleep(10)"
    )
    began = time.monotonic()
    outcome = node.make(start=script(code), deadline=0.3).probe(gpu("A"))
    assert outcome == Unresponsive(seconds=0.3, ended=True)
    assert time.monotonic() - began < 1.3
    assert zombies() == []


@pytest.mark.parametrize(
    ("code", "detail"),
    [
        ("pass", "the probe's answer is no answer: ''"),
        ("print('hello')", "the probe's answer is no answer: 'hello\\n'"),
        ("print('[]')", "the probe's answer is no answer: '[]\\n'"),
        (
            'print(\'{"result": "fine"}\')',
            'the probe\'s answer is no answer: \'{"result": "fine"}\\n\'',
        ),
        ('print(\'{"result": "passed", "seconds": NaN}\')', "answer is no answer"),
        ('print(\'{"result": "error", "code": true}\')', "answer is no answer"),
        ("import os; os.write(1, bytes(range(128, 140)))", "answer is no answer: '\\\\x80"),
        ("print('[' * 15000)", "the probe's answer is no answer: '[[["),
        ("raise SystemExit(3)", "the probe ended with exit code 3"),
        ("raise ValueError('odd')", "the probe ended with exit code 1: ValueError: odd"),
        ("import os; os.kill(os.getpid(), 9)", "the probe was ended by signal SIGKILL"),
    ],
)
def test_an_end_without_a_proper_answer_is_a_crash(node, code, detail) -> None:
    outcome = node.make(start=script(code)).probe(gpu("A"))
    assert isinstance(outcome, Crashed)
    assert detail in outcome.detail
    assert len(outcome.detail) < 1000


@pytest.mark.parametrize("stream", [1, 2])
def test_endless_output_is_cut_off_and_ends_the_child(node, stream) -> None:
    files = open_files()
    code = f"import os\nwhile True: os.write({stream}, b'x' * 65536)"
    began = time.monotonic()
    outcome = node.make(start=script(code), deadline=9).probe(gpu("A"))
    assert outcome == Crashed(detail=f"the probe wrote more than {MOST_OUTPUT} bytes")
    assert time.monotonic() - began < 5
    assert open_files() == files


def test_what_libraries_print_is_not_taken_for_the_answer(node) -> None:
    code = f"import os; os.write(2, b'libcuda: note\\n' * 100); os.write(1, {PASSED!r})"
    assert node.make(start=script(code)).probe(gpu("A")) == Passed(seconds=0.1)


def test_a_grandchild_that_keeps_the_pipe_open_is_not_waited_for(node) -> None:
    code = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    time.sleep(3); os._exit(0)\n"
        f"os.write(1, {PASSED!r}); os._exit(0)"
    )
    began = time.monotonic()
    assert node.make(start=script(code)).probe(gpu("A")) == Passed(seconds=0.1)
    assert time.monotonic() - began < 2


def test_interrupting_ends_the_probes_of_one_gpu_and_those_that_wait(node) -> None:
    prober = node.make(parallel=1)
    first, second = target(node.machine, 0), target(node.machine, 1)
    with ThreadPoolExecutor(2) as pool:
        with node.machine.rule("cuInit", delay_ms=FOR_EVER_MS, gpu=0):
            hung = pool.submit(prober.probe, first)
            node.machine.wait_calls("cuInit", 1)
            waiting = pool.submit(prober.probe, first)
            _until(lambda: len(prober._runs) == 2)
            prober.interrupt(GpuUuid(second.uuid))
            assert not hung.done()
            prober.interrupt(GpuUuid(first.uuid))
            assert hung.result(5) == Interrupted()
            assert waiting.result(5) == Interrupted()
        assert isinstance(prober.probe(first), Passed)


def test_at_most_so_many_run_at_once_and_the_others_take_their_turn(node) -> None:
    most, now, lock = 0, 0, threading.Lock()
    together = threading.Barrier(2)

    class Counted(Quick):
        def wait(self, seconds: float) -> Ended | None:
            nonlocal most, now
            with lock:
                now += 1
                most = max(most, now)
            together.wait(5)
            with lock:
                now -= 1
            return super().wait(seconds)

    prober = node.make(start=lambda *_: Counted(), parallel=2)
    with ThreadPoolExecutor(6) as pool:
        outcomes = list(pool.map(prober.probe, [gpu(f"G{i}") for i in range(6)]))
    assert {type(outcome) for outcome in outcomes} == {Passed}
    assert most == 2


def test_limits_that_cannot_hold_are_refused() -> None:
    for wrong in ({"deadline": 0}, {"grace": -1}, {"parallel": 0}, {"parallel": 3, "abandoned": 2}):
        with pytest.raises(ValueError, match="need deadline"):
            Limits(**wrong)


def _until(condition) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)
