"""Time alone makes a judgement worse at the right moment, and costs nothing else."""

from __future__ import annotations

import pytest

from driver.core.health.signals import CannotTell, Need, Scope, Source, Well
from tests.plugin.health.shell import FIRST, ONE, SECOND, TWO, Shell, fault
from tests.plugin.nodes import mig_gpu


def silent(at: float) -> CannotTell:
    return CannotTell(source=Source.POLL, scope=Scope(gpu=ONE), name="nvml", at=at)


def test_what_cannot_be_told_withholds_after_the_debounce_and_comes_back_with_an_answer() -> None:
    shell = Shell(debounce=60)
    shell.custody.take(silent(shell.now))
    shell.wait(59)
    assert shell.taints() == {}
    shell.wait(2)
    assert shell.taints() == {FIRST: ["nvml"]}
    shell.wait(5)
    shell.custody.take(Well(source=Source.POLL, scope=Scope(gpu=ONE), name="nvml", at=shell.now))
    assert shell.taints() == {}


def test_nothing_is_done_while_nothing_is_due() -> None:
    shell = Shell()
    assert shell.wait(3600) == 0
    shell.custody.take(fault(at=shell.now))
    assert shell.monitor.step() is None


def test_a_thousand_application_errors_are_judged_once_and_change_nothing() -> None:
    shell = Shell()
    judged: list[float] = []
    shell.judged.subscribe(lambda: judged.append(shell.now))
    for _ in range(1000):
        shell.custody.take(fault("xid-13", Need.NOTHING, at=shell.now))
        shell.now += 0.0005
    assert judged == []
    shell.wait(1)
    assert len(judged) == 1
    assert (shell.taints(), shell.events) == ({}, [])


def test_a_fault_told_a_thousand_times_is_judged_at_once_and_then_summed_up() -> None:
    shell = Shell()
    judged: list[float] = []
    shell.custody.take(fault(at=shell.now))
    shell.judged.subscribe(lambda: judged.append(shell.now))
    saves = shell.store.saves
    for _ in range(1000):
        shell.now += 0.0005
        shell.custody.take(fault(at=shell.now))
    assert (judged, shell.store.saves) == ([], saves)
    shell.custody.take(fault("worse", Need.OPERATOR, at=shell.now))
    assert shell.taints()[FIRST] == ["worse"]
    assert shell.store.kept is shell.custody.evidence
    shell.wait(10)
    (known,) = (i for i in shell.store.kept.items.values() if i.name == "xid-79")
    assert known.count == 1001


@pytest.mark.parametrize("jump", [-7200.0, 7200.0])
def test_a_clock_that_is_set_delays_no_taint_and_makes_no_loop(jump: float) -> None:
    shell = Shell(debounce=60)
    monitor = shell.monitor
    wall = 0.0
    monitor._clock = lambda: shell.now + wall
    shell.custody.take(fault("one", Need.RESET, at=shell.now, on=TWO))
    shell.custody.take(fault(at=shell.now))
    wall = jump
    shell.wait(1.2)
    assert shell.taints() == {FIRST: ["xid-79"], SECOND: ["one"]}
    assert shell.wait(300) < 10


def test_hardware_that_is_found_later_is_judged_by_what_was_known_of_it() -> None:
    shell = Shell(known=False)
    shell.custody.take(fault(at=shell.now))
    assert shell.taints() == {}
    shell.find(*shell.gpus)
    assert shell.taints() == {FIRST: ["xid-79"]}


def test_d14_a_fault_without_a_partition_is_of_every_device_of_its_gpu_and_of_no_other() -> None:
    shell = Shell(mig_gpu(1), mig_gpu(2))
    shell.custody.take(fault(at=shell.now))
    assert shell.hardware.inventory is not None
    devices = shell.hardware.inventory.devices
    assert set(shell.taints()) == {n for n, d in devices.items() if d.gpu.uuid == ONE}
    assert len(shell.taints()) > 7
