"""Events, node condition and metrics: one word for each change, and none for what is old."""

from __future__ import annotations

import pytest

from driver.core.health.signals import NODE, CannotTell, Need, ProbePassed, Scope, Source
from driver.core.ids import GpuUuid
from driver.ports.events import Reason
from tests.plugin.health.shell import ONE, TWO, MemoryStore, Shell, fault


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


def test_a_restart_under_a_fault_tells_nobody_again_and_counts_only_when_the_gpus_are_known() -> (
    None
):
    store = MemoryStore()
    Shell(store=store).custody.take(fault(at=1000))
    after = Shell(store=store, known=False)
    assert (after.events, after.conditions) == ([], [])
    after.find(*after.gpus)
    assert after.events == []
    assert [c.message.split(";")[0] for c in after.conditions] == ["1 of 2 GPUs are ready"]


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
