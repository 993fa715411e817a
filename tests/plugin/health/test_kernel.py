"""The catalogue at once, the GPU's own advice when it is up to date, and no storm of questions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from driver.core.health.judge import State
from driver.core.health.kernel.verdict_xid import judge_xid
from driver.core.health.kernel.xid import Xid
from driver.core.health.readings.values import Failed, Trouble
from driver.core.health.signals import Fault, Need, ProbePassed, Scope, Source
from driver.core.snapshot import MigState
from driver.plugin.health.unsettled import ASKS, GIVES_UP, UnsettledSigns
from driver.ports.health import XidSeen
from tests.plugin.health.shell import FIRST, ONE, SECOND, TWO, MemoryStore, Shell
from tests.plugin.stubs import gpu


def state(shell: Shell, number: int = 1) -> State:
    return shell.judged.judgements.gpus[gpu(number).uuid].state


def test_d34_a_reset_by_the_catalogue_counts_at_once_and_late_advice_leaves_it_to_a_probe() -> None:
    shell = Shell()
    shell.read(0)
    assert shell.xid(120)
    assert shell.taints() == {FIRST: ["xid-120"]}
    shell.now += 3
    shell.read(0)
    assert state(shell) is State.RESET
    shell.now += 3
    shell.read(0)
    shell.wait(1)
    assert state(shell) is State.DEGRADED
    shell.custody.take(ProbePassed(scope=Scope(gpu=ONE), at=shell.now))
    shell.wait(1)
    assert shell.taints() == {}


def test_d34_a_code_that_drives_no_advice_stays_until_the_reset_whatever_the_gpu_says() -> None:
    shell = Shell()
    shell.read(0)
    shell.xid(119)
    shell.now += 6
    shell.read(0)
    shell.wait(1)
    assert state(shell) is State.RESET


def test_d34_a_code_that_needs_nothing_withholds_when_the_gpu_asks_for_a_reset_a_moment_later() -> (
    None
):
    shell = Shell()
    shell.read(0)
    assert not shell.xid(31)
    assert shell.taints() == {}
    asks, rest = shell.kernel._unsettled.ask(shell.now + 0.3)
    assert asks
    assert rest == pytest.approx(0.7)
    shell.now += 5.1
    shell.read(1)
    shell.wait(1)
    assert state(shell) is State.RESET
    assert shell.taints() == {FIRST: ["recovery-action"]}


def test_the_same_code_told_twice_is_settled_for_both_who_told_it() -> None:
    shell = Shell()
    shell.kernel.xid(XidSeen(gpu=ONE, code=120, at=shell.now))
    shell.xid(120)
    shell.now += 6
    shell.read(0)
    items = [i for i in shell.custody.evidence.items.values() if i.name == "xid-120"]
    assert {i.source for i in items} == {Source.KERNEL, Source.EVENTS}
    assert {i.weight for i in items} == {Need.PROBE}


def test_the_same_code_on_two_partitions_is_settled_for_both() -> None:
    shell = Shell()
    for instance in (1, 2):
        shell.kernel.xid(XidSeen(gpu=ONE, code=120, at=shell.now, gi=instance, ci=0))
    shell.now += 6
    shell.read(0)
    assert {i.weight for i in shell.custody.evidence.items.values()} == {Need.PROBE}


def test_a_gpu_that_does_not_answer_settles_nothing_and_is_not_asked_for_ever() -> None:
    shell = Shell()
    shell.xid(120)
    shell.now += 30
    shell.read(failed=Failed(trouble=Trouble.LOST, text="lost"))
    assert state(shell) is State.RESET
    assert shell.kernel._unsettled.ask(shell.now) != (False, None)
    assert shell.kernel._unsettled.ask(shell.now + GIVES_UP) == (False, None)


def test_a_line_from_long_before_our_start_is_settled_by_the_next_look() -> None:
    shell = Shell()
    shell.xid(120)
    signs = UnsettledSigns()
    assert signs.add(
        Xid(code=120), need=Need.RESET, gpu=ONE, source=Source.KERNEL, at=0.0, now=5000.0
    )
    assert signs.ask(5000.3)[0]
    assert len(signs.settled({ONE: 5000.4})) == 1
    assert signs.settled({ONE: 5000.4}) == []


def test_a_storm_asks_as_often_as_one_sign_does_and_its_gravest_stands() -> None:
    signs = UnsettledSigns()
    asked = 0
    for n in range(10_000):
        now = n / 1000
        need = Need.RESET if n == 5 else Need.NOTHING
        event = Xid(code=120, text="grave" if n == 5 else "mild")
        signs.add(event, need=need, gpu=ONE, source=Source.KERNEL, at=now, now=now)
        asked += signs.ask(now)[0]
    assert asked <= len(ASKS) + 1
    assert signs.settled({ONE: 14.9}) == []
    (settled,) = signs.settled({ONE: 15.0})
    assert isinstance(settled.event, Xid)
    assert settled.event.text == "grave"


def test_d3_a_gpu_is_found_by_its_address_while_nvml_fails() -> None:
    shell = Shell()
    shell.hardware.failed("NVML: the GPU is lost")
    assert shell.xid(79, 2)
    assert shell.taints() == {SECOND: ["xid-79"]}


def test_d3_a_gpu_that_nvml_never_gave_is_known_from_the_log_itself() -> None:
    shell = Shell(known=False)
    pci = f"{gpu(2).pci!s:.10}"
    shell.line(f"NVRM: GPU at PCI:{pci}: {TWO}")
    shell.xid(79, 2)
    assert state(shell, 2) is State.REBOOT


def test_d3_a_line_that_came_while_no_plugin_ran_is_of_the_gpu_that_was_there_before() -> None:
    store = MemoryStore()
    Shell(store=store)
    after = Shell(store=store, known=False)
    assert after.xid(46)
    assert state(after) is State.RESET
    after.line(f"NVRM: GPU at PCI:{gpu(2).pci!s:.10}: {gpu(3).uuid}")
    after.xid(79, 2)
    assert TWO not in after.judged.judgements.gpus


def test_d29_a_flood_of_application_errors_withholds_nothing_and_is_summed_up() -> None:
    shell = Shell()
    judged: list[float] = []
    shell.judged.subscribe(lambda: judged.append(shell.now))
    for n in range(11_760):
        assert not shell.xid(45, more=f"pid={n % 50}, name=python3, Ch 00000008")
        shell.now += 0.001
        shell.kernel._pass_on()
        shell.monitor.step()
    shell.now += 1
    shell.kernel._pass_on()
    (item,) = shell.custody.evidence.items.values()
    assert (item.count, item.weight) == (11_760, Need.NOTHING)
    assert (shell.taints(), shell.events) == ({}, [])
    assert len(judged) < 20


def test_a_clock_set_back_holds_up_neither_sums_nor_advice() -> None:
    shell = Shell()
    shell.xid(13)
    shell.xid(120)
    shell.set_back = 3600
    shell.now += 1
    assert shell.kernel._pass_on() is None
    shell.now += 5
    shell.read(0)
    weights = {i.name: i.weight for i in shell.custody.evidence.items.values()}
    assert weights == {"xid-13": Need.NOTHING, "xid-120": Need.PROBE}


def test_lines_of_a_storm_that_differ_are_passed_on_before_they_fill_the_memory() -> None:
    shell = Shell()
    for n in range(3000):
        shell.line(f"NVRM: Xid (PCI:0000:01:00): 31, pid={n}, name=p{n}, Ch 00000008")
        assert len(shell.kernel._sums._sums) <= 512
    shell.now += 2
    shell.kernel._pass_on()
    assert shell.metrics.count[Source.KERNEL.value] == 3000


def test_s2_a_harmless_error_after_a_grave_one_takes_nothing_back() -> None:
    shell = Shell()
    shell.xid(79)
    shell.xid(13)
    shell.now += 2
    shell.kernel._pass_on()
    shell.wait(2)
    assert shell.taints() == {FIRST: ["xid-79"]}
    names = {r.item.name for r in shell.judged.judgements.gpus[ONE].reasons}
    assert names == {"xid-79", "xid-13"}


def test_s8_a_line_that_a_program_wrote_is_counted_and_not_believed() -> None:
    shell = Shell()
    assert not shell.line("NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.", facility=1)
    assert shell.metrics.count["forged"] == 1
    assert shell.custody.evidence.items == {}


def test_d1_a_gpu_off_the_bus_without_an_xid_and_the_xid_after_it_are_one_fault() -> None:
    shell = Shell()
    shell.line("NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.")
    assert shell.taints() == {FIRST: ["xid-79"]}
    shell.xid(79)
    assert len(shell.custody.evidence.items) == 1


def test_a_partition_of_an_xid_that_nvml_tells_is_that_partition() -> None:
    shell = Shell(replace(gpu(1), mig=MigState(capable=True)), gpu(2))
    shell.kernel.xid(XidSeen(gpu=ONE, code=94, at=shell.now, gi=3, ci=0))
    (item,) = shell.custody.evidence.items.values()
    assert item.scope == Scope(gpu=ONE, gi=3, ci=0)


def test_d35_the_same_number_of_the_recovery_action_has_two_meanings_by_branch() -> None:
    known = replace(Shell().kernel._known(), settled=True)
    xid = Xid(code=31)
    needs = {}
    for branch, action in ((580, 5), (595, 5), (595, 9)):
        now = replace(known, branch=branch, actions={ONE: action})
        said = judge_xid(xid, now, at=1.0, source=Source.EVENTS, gpu=ONE)
        needs[branch, action] = {
            s.need for s in said.signals if isinstance(s, Fault) and s.name != "xid-31"
        }
    assert needs[580, 5] != set()
    assert Need.RESET not in needs[595, 5] | {Need.NOTHING}
    assert needs[595, 9] != set()
