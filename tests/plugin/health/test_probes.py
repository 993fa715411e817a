"""Probes run on what nobody holds, make way for claims, and prove only what they finished."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, cast

import pytest

from driver.core.health.judge import State
from driver.core.health.probe import (
    CallFailed,
    Interrupted,
    Outcome,
    Unresponsive,
    WrongResult,
)
from driver.core.health.readings.node import Memories, weigh_node
from driver.core.health.readings.over_time import Limits as OverTime
from driver.core.health.readings.values import GpuReadings, NodeReadings
from driver.core.health.signals import Need, ResetSeen
from tests.plugin.health.probed import PASSED, AtOnce, Bench, cut
from tests.plugin.health.shell import FIRST, ONE, fault
from tests.plugin.nodes import mig_gpu
from tests.plugin.stubs import gpu


def test_a_clock_set_back_puts_no_probe_off() -> None:
    bench = Bench(gpu(1))
    bench.probes.make_way([ONE])
    bench.shell.set_back = 3600
    bench.shell.custody.take(fault("bad", Need.PROBE, at=bench.shell.clock()))
    assert bench.look() == pytest.approx(15)
    bench.shell.now += 16
    bench.look()
    assert bench.prober.probed == [ONE]


def test_nothing_is_probed_while_nothing_is_held_against_anything() -> None:
    bench = Bench()
    assert bench.look() is None
    assert bench.prober.probed == []


def test_a_probe_that_passes_brings_the_gpu_back_and_is_counted() -> None:
    bench = Bench()
    bench.sick()
    bench.look()
    assert bench.prober.probed == [ONE]
    assert bench.state() is State.READY
    assert bench.shell.metrics.count["Passed"] == 1


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (WrongResult(seconds=1, detail="3 of 4 bits"), State.RESET),
        (Unresponsive(seconds=30, ended=True), State.DEGRADED),
        (Interrupted(), State.DEGRADED),
    ],
)
def test_a_probe_that_does_not_pass_proves_nothing_and_is_tried_again_later(
    outcome: Outcome, state: State
) -> None:
    bench = Bench(outcomes=(outcome,))
    bench.sick()
    bench.look()
    assert bench.state() is state
    pause = bench.look()
    assert len(bench.prober.probed) == 1
    assert pause is None or pause >= 5


HANG = Unresponsive(seconds=30, ended=True)
NO_UVM = CallFailed(call="cuInit", code=999, name="CUDA_ERROR_UNKNOWN", seconds=0.1)
LAUNCH = CallFailed(call="cuCtxSynchronize", code=719, name="CUDA_ERROR_LAUNCH", seconds=0.1)
WRONG = WrongResult(seconds=1, detail="3 of 4 bits")


@pytest.mark.parametrize(
    ("outcomes", "states"),
    [
        # a busy host
        ((HANG, HANG, HANG, PASSED), "degraded reset reset ready"),
        # an error of a kernel
        ((LAUNCH, LAUNCH, PASSED), "reset reset ready"),
        # a part of the driver that comes late: unknown a minute after it was seen first
        ((NO_UVM, NO_UVM, NO_UVM, NO_UVM, NO_UVM, PASSED), "degraded " * 4 + "unknown ready"),
        # computed wrongly: no further probe, and its pass would prove nothing
        ((WRONG, PASSED), "reset reset reset"),
    ],
)
def test_what_a_later_probe_disproves_comes_back_by_itself_less_and_less_often(
    outcomes: tuple[Outcome, ...], states: str
) -> None:
    bench = Bench(outcomes=outcomes)
    bench.sick()
    pause = 5.0
    for state in states.split():
        bench.look()
        assert bench.state().value == state
        bench.shell.wait(pause)
        pause *= 2
    expected = 1 if outcomes[0] is WRONG else len(outcomes)
    assert len(bench.prober.probed) == expected


@pytest.mark.parametrize(
    ("branch", "action", "xid"), [(550, None, 95), (550, None, 140), (580, 0, 46)]
)
def test_a_reset_that_no_driver_tells_of_counts_by_an_operators_word(
    branch: int, action: int | None, xid: int
) -> None:
    bench = Bench()
    memory: Memories = {}
    shell = bench.shell

    def look() -> None:
        nonlocal memory
        shell.wait(5)
        read = {g.uuid: GpuReadings(gpu=g.uuid, at=shell.now, recovery=action) for g in shell.gpus}
        found = NodeReadings(at=shell.now, branch=branch, gpus=read)
        signals, memory = weigh_node(found, memory, OverTime())
        shell.kernel.looked(found)
        shell.custody.take(*signals)

    look()
    shell.xid(xid)
    for _ in range(20):
        look()
        bench.look()
    assert (bench.state(), bench.prober.probed) == (State.RESET, [])
    shell.custody.reset_told(ResetSeen(gpu=ONE, at=shell.now, by="ada"))
    look()
    bench.look()
    assert (bench.state(), bench.prober.probed) == (State.READY, [ONE])


def test_what_came_back_by_a_probe_twice_within_a_day_waits_for_more_than_a_probe() -> None:
    bench = Bench(outcomes=(LAUNCH, PASSED) * 3)
    for needs in (State.RESET, State.RESET, State.REBOOT):
        bench.sick()
        bench.look()
        assert bench.state() is needs
        bench.shell.wait(10)
        bench.look()
    assert bench.state() is State.REBOOT
    assert len(bench.prober.probed) == 5


def test_what_happens_during_a_probe_is_newer_than_its_proof() -> None:
    bench = Bench()
    bench.sick()

    def again() -> None:
        bench.shell.now += 1
        bench.sick()

    bench.prober.during = again
    bench.look()
    assert bench.state() is State.DEGRADED


def test_a_claim_holds_the_gpu_and_its_end_lets_the_probe_go() -> None:
    bench = Bench()
    bench.sick()
    bench.claim(ONE)
    assert bench.look() is None
    assert bench.prober.probed == []
    bench.shell.entries.clear()
    bench.look()
    assert bench.prober.probed == [ONE]


def test_a_claim_that_comes_between_choice_and_lock_has_the_gpu() -> None:
    bench = Bench()
    bench.sick()
    workers = AtOnce()
    submit = workers.submit

    def late(work: Any, *arguments: Any) -> Future[None]:
        bench.claim(ONE)
        return submit(work, *arguments)

    workers.submit = late  # type: ignore[method-assign]
    bench.probes._start(cast("ThreadPoolExecutor", workers))
    assert bench.prober.probed == []


def test_a_claim_that_wants_the_gpu_ends_the_probe_and_keeps_others_away_for_a_while() -> None:
    bench = Bench(outcomes=(Interrupted(), PASSED))
    bench.sick()
    bench.prober.during = lambda: bench.probes.make_way([ONE])
    bench.look()
    assert bench.prober.interrupted == [ONE]
    bench.shell.now += 10
    pause = bench.look()
    assert len(bench.prober.probed) == 1
    assert pause is not None
    assert pause == pytest.approx(5)
    bench.prober.during = lambda: None
    bench.shell.now += pause
    bench.look()
    assert bench.state() is State.READY


def test_a_claim_that_comes_before_the_child_is_started_is_not_missed() -> None:
    bench = Bench()
    bench.sick()
    with bench.locks.held((ONE,), by="somebody"):
        bench.look()  # put off: the lock is not to be had
    bench.shell.now += 5
    bench.probes.make_way([ONE])
    bench.look()
    assert bench.prober.probed == []


def test_all_partitions_of_a_gpu_must_pass_and_the_first_interruption_ends_the_round() -> None:
    bench = Bench(cut(1, 0, 1, 2), gpu(2), outcomes=(PASSED, Interrupted(), PASSED))
    bench.sick()
    bench.look()
    assert bench.prober.probed == ["MIG-0", "MIG-1"]
    assert bench.state() is State.DEGRADED
    bench.shell.now += 5
    bench.look()
    assert bench.prober.probed[2:] == ["MIG-0", "MIG-1", "MIG-2"]
    assert bench.state() is State.READY


def test_a_partition_that_is_sick_alone_is_probed_alone() -> None:
    bench = Bench(cut(1, 0, 1), gpu(2))
    bench.sick(gi=1)
    bench.look()
    assert bench.prober.probed == ["MIG-1"]
    assert bench.shell.custody.evidence.items == {}


def test_mig_mode_is_left_under_the_gpus_lock_where_nothing_could_be_probed() -> None:
    bench = Bench(cut(1), gpu(2))
    bench.sick()
    bench.look()
    assert bench.unused == [ONE]
    assert bench.prober.probed == []
    bench.shell.find(replace(gpu(1), mig=mig_gpu(1).mig), gpu(2))
    bench.look()
    assert bench.prober.probed == [ONE]


def test_nothing_is_probed_while_the_gpus_are_let_go_of() -> None:
    bench = Bench()
    bench.sick()
    bench.closed = True
    assert bench.look() is None
    bench.probes.let_go()
    assert (bench.prober.probed, bench.prober.interrupted) == ([], [None])


def test_an_error_of_ours_ends_one_probe_and_not_the_plugin() -> None:
    bench = Bench()
    bench.sick()

    def fail() -> None:
        raise OSError("no process")

    bench.prober.during = fail
    bench.look()
    bench.prober.during = lambda: None
    bench.shell.now += 5
    bench.look()
    assert bench.state() is State.READY


def test_the_end_ends_a_probe_that_runs() -> None:
    bench = Bench(outcomes=(Interrupted(),))
    bench.sick()
    running, told, stop = threading.Event(), threading.Event(), threading.Event()

    def during() -> None:
        running.set()
        assert told.wait(5)

    bench.prober.during = during
    bench.prober.on_interrupt = told.set
    thread = threading.Thread(target=bench.probes.run, args=(stop,))
    thread.start()
    assert running.wait(5)
    stop.set()
    bench.probes.look()
    thread.join(5)
    assert not thread.is_alive()
    assert bench.shell.hardware.inventory is not None
    assert FIRST in bench.shell.hardware.inventory.devices
