"""Events, node condition and metrics: one word for each change, and none for what is old."""

from __future__ import annotations

import pytest

from driver.core.health.signals import NODE, CannotTell, Need, ProbePassed, Scope, Source
from driver.core.ids import GpuUuid
from driver.ports.events import Reason
from tests.plugin.health.shell import FIRST, ONE, TWO, MemoryStore, Shell, fault


def reasons(shell: Shell) -> list[Reason]:
    return [reason for reason, _ in shell.events]


def test_a_gpu_is_told_when_it_is_withheld_and_when_it_is_back_and_not_in_between() -> None:
    shell = Shell()
    shell.custody.take(fault("bad", Need.PROBE, at=shell.now))
    for _ in range(20):
        shell.wait(1)
        shell.custody.take(fault("bad", Need.PROBE, at=shell.now))
    shell.custody.take(fault(at=shell.now))
    shell.wait(2)
    assert reasons(shell) == [Reason.DEVICE_DEGRADED, Reason.DEVICE_WITHHELD]
    assert "xid-79" in shell.events[-1][1]
    assert ONE in shell.events[-1][1]


def test_a_gpu_that_has_proved_itself_is_told_and_counted() -> None:
    shell = Shell()
    shell.custody.take(fault("bad", Need.PROBE, at=shell.now))
    shell.wait(2)
    shell.custody.take(ProbePassed(scope=Scope(gpu=ONE), at=shell.now))
    assert reasons(shell) == [Reason.DEVICE_DEGRADED, Reason.DEVICE_READY]
    assert shell.metrics.states == {"ready": 2}
    assert (shell.metrics.count["degraded"], shell.metrics.count["ready"]) == (1, 1)


def test_a_restart_under_a_fault_tells_nobody_again_and_counts_all_gpus_of_the_node() -> None:
    store = MemoryStore()
    Shell(store=store).custody.take(fault(at=1000))
    after = Shell(store=store, known=False)
    after.find(*after.gpus)
    assert after.events == []
    assert {c.message.split(";")[0] for c in after.conditions} == {"1 of 2 GPUs are ready"}


def test_a_node_is_not_called_well_before_its_gpus_were_read() -> None:
    store = MemoryStore()
    Shell(store=store).custody.take(fault("bad", Need.PROBE, at=1000))
    assert Shell(store=store, known=False).conditions == []


def test_faults_are_counted_as_wrong_gpus_only_when_the_others_are_known() -> None:
    store = MemoryStore()
    Shell(store=store, known=False).custody.take(fault(at=1000))
    after = Shell(store=store, known=False)
    assert after.conditions == []
    after.find(*after.gpus)
    assert after.conditions[-1].message.startswith("1 of 2 GPUs are ready")


@pytest.mark.parametrize(
    ("need", "on", "status", "reason", "text"),
    [
        (Need.NOTHING, ONE, "True", "AllReady", "2 of 2 GPUs are ready"),
        (Need.PROBE, ONE, "True", "Degraded", "2 of 2 GPUs are ready; GPU-00000001"),
        (Need.REBOOT, ONE, "False", "Withheld", "1 of 2 GPUs are ready; GPU-00000001"),
        (Need.WATCH, None, "True", "Degraded", "2 of 2 GPUs are ready; node: bad"),
        (Need.REBOOT, None, "False", "Withheld", "0 of 2 GPUs are ready"),
    ],
)
def test_the_condition_counts_and_names_what_is_not_ready(
    need: Need, on: GpuUuid | None, status: str, reason: str, text: str
) -> None:
    shell = Shell()
    shell.custody.take(fault("bad", need, at=shell.now, on=on))
    shell.wait(2)
    condition = shell.conditions[-1]
    assert (condition.status, condition.reason) == (status, reason)
    assert condition.message.startswith(text)


def test_gpus_that_nobody_can_look_at_make_the_condition_unknown_even_if_none_was_ever_seen() -> (
    None
):
    shell = Shell(known=False, debounce=60)
    shell.custody.take(CannotTell(source=Source.POLL, scope=NODE, name="nvml", at=shell.now))
    shell.wait(59)
    assert shell.conditions == []
    shell.wait(2)
    assert (shell.conditions[-1].status, shell.conditions[-1].reason) == ("Unknown", "CannotTell")


def test_d20_a_missing_gpu_makes_the_node_not_ready_and_is_named() -> None:
    shell = Shell()
    shell.custody.take(fault("gpu-missing", Need.RESET, at=shell.now, on=TWO))
    condition = shell.conditions[-1]
    assert condition.status == "False"
    assert TWO in condition.message


def test_d20_gpus_that_were_lost_while_no_plugin_ran_are_named_and_counted() -> None:
    store = MemoryStore()
    Shell(store=store)
    after = Shell(store=store, known=False)
    missing = [fault("gpu-missing", Need.RESET, at=after.now, on=each) for each in (ONE, TWO)]
    after.custody.take(*missing)
    condition = after.conditions[-1]
    assert (condition.status, condition.reason) == ("False", "Withheld")
    assert condition.message.startswith("0 of 2 GPUs are ready")
    assert ONE in condition.message
    assert TWO in condition.message


def test_who_has_let_go_of_the_lead_tells_nothing_any_more() -> None:
    store = MemoryStore()
    old, new = Shell(store=store), Shell(store=store, leads=False)
    old.told.follow()
    old.custody.follow()
    new.custody.lead()
    new.custody.take(fault(at=new.now))
    old.custody.refresh()
    assert "xid-79" in old.judged.refusal([(FIRST, ONE)])
    assert old.events == []
