"""Playbooks: what happens to a GPU, and whether it may be used again afterwards."""

from __future__ import annotations

import pytest

from driver.core.health.judgement import State
from driver.core.health.proof import Step
from driver.core.health.signals import NODE, Need, Signal, Source
from tests.unit.core.health.given_health import (
    G1,
    ack,
    fault,
    lived,
    passed,
    reset,
    well,
)

K, P = Source.KERNEL, Source.POLL
ROW = "row-remap-pending"
READY, DEGRADED = State.READY, State.DEGRADED


def seen(need: Need, by: Source = K, at: float = 10.0) -> Signal:
    return fault("bad", need, at, by=by)


@pytest.mark.parametrize(
    ("signals", "state"),
    [
        # of an application
        ([seen(Need.NOTHING)], READY),
        # a probe decides
        ([seen(Need.PROBE)], DEGRADED),
        ([seen(Need.PROBE), reset(20)], DEGRADED),
        ([seen(Need.PROBE), passed(10)], DEGRADED),
        ([seen(Need.PROBE), passed(20)], READY),
        ([seen(Need.PROBE, P), well("bad", 20)], READY),
        # watched
        ([seen(Need.WATCH, P)], DEGRADED),
        ([seen(Need.WATCH, P), passed(20)], DEGRADED),
        ([seen(Need.WATCH, P), reset(20)], DEGRADED),
        ([seen(Need.WATCH, P), well("bad", 9)], DEGRADED),
        ([seen(Need.WATCH, P), well("other", 20)], DEGRADED),
        ([seen(Need.WATCH, P), well("bad", 20, by=Source.DCGM)], DEGRADED),
        ([seen(Need.WATCH, P), well("bad", 20, on=G1)], DEGRADED),
        ([seen(Need.WATCH, P), well("bad", 20)], READY),
        ([seen(Need.WATCH), reset(9)], DEGRADED),
        ([seen(Need.WATCH), reset(20)], READY),
        ([seen(Need.WATCH), well("bad", 20, by=K)], READY),
        # a reset, seen by an event
        ([seen(Need.RESET)], State.RESET),
        ([seen(Need.RESET), passed(20)], State.RESET),
        ([seen(Need.RESET), reset(20)], State.RESET),
        ([seen(Need.RESET), well("bad", 20, by=K), passed(30)], State.RESET),
        ([seen(Need.RESET), reset(9), passed(30)], State.RESET),
        ([seen(Need.RESET), passed(15), reset(20)], State.RESET),
        ([seen(Need.RESET), reset(20), passed(20)], State.RESET),
        ([seen(Need.RESET), reset(20), seen(Need.RESET, at=25), passed(30)], State.RESET),
        ([seen(Need.RESET), reset(20, G1), passed(30)], State.RESET),
        ([seen(Need.RESET), reset(20), passed(30, G1)], State.RESET),
        ([seen(Need.RESET), reset(20), passed(30)], READY),
        ([seen(Need.RESET), reset(20), seen(Need.RESET, at=20), passed(30)], State.RESET),
        # a probe that is slower than the looks
        ([seen(Need.RESET, P), well("bad", 20), reset(29), passed(25)], READY),
        ([seen(Need.RESET), reset(20), reset(29), passed(25)], READY),
        # the same, seen as a state
        ([seen(Need.RESET, P), well("bad", 20)], State.RESET),
        ([seen(Need.RESET, P), passed(20)], State.RESET),
        ([seen(Need.RESET, P), well("bad", 20), well("bad", 29), passed(25)], READY),
        ([seen(Need.RESET, P), well("bad", 20), seen(Need.WATCH, P, 25), passed(30)], State.RESET),
        ([seen(Need.RESET, P), reset(20), passed(30)], READY),
        # a reboot
        ([seen(Need.REBOOT), reset(20), passed(30)], State.REBOOT),
        ([seen(Need.REBOOT, P), well("bad", 20), passed(30)], READY),
        # an operator
        ([seen(Need.OPERATOR), reset(20), passed(30)], State.OPERATOR),
        ([seen(Need.OPERATOR), ack("bad", 20)], State.OPERATOR),
        ([seen(Need.OPERATOR), ack("bad", 20, serial="another"), passed(30)], State.OPERATOR),
        ([seen(Need.OPERATOR), ack("other", 20), passed(30)], State.OPERATOR),
        ([seen(Need.OPERATOR), ack("bad", 9), passed(30)], State.OPERATOR),
        ([seen(Need.OPERATOR), passed(15), ack("bad", 20)], State.OPERATOR),
        ([seen(Need.OPERATOR), ack("bad", 20), passed(30)], READY),
        ([seen(Need.OPERATOR, P), ack("bad", 20), passed(30)], State.OPERATOR),
        ([seen(Need.OPERATOR, P), well("bad", 15), ack("bad", 20), passed(30)], READY),
        # a probe that found a wrong result is a fault like others
        ([seen(Need.RESET, Source.PROBE), passed(20)], State.RESET),
        ([fault("probe-wrong-result", at=10, by=Source.PROBE), passed(20)], State.RESET),
        ([fault("probe-error", at=10, by=Source.PROBE), passed(10)], State.RESET),
        ([fault("probe-error", at=10, by=Source.PROBE), passed(20)], READY),
        ([fault("probe-error", at=10, by=K), passed(20)], State.RESET),
        # a row that waited for a reset was replaced
        ([seen(Need.RESET), well(ROW, 20), passed(30)], State.RESET),
        ([seen(Need.RESET), fault(ROW, Need.WATCH, 11, by=P), well(ROW, 20), passed(30)], READY),
        ([seen(Need.RESET), fault(ROW, Need.WATCH, 11), well(ROW, 20), passed(30)], State.RESET),
        ([seen(Need.RESET, Source.PROBE), reset(20), passed(30)], READY),
        # a weaker sign lowers nothing
        ([seen(Need.RESET), seen(Need.WATCH, at=20)], State.RESET),
        ([seen(Need.WATCH), seen(Need.REBOOT, at=20)], State.REBOOT),
    ],
)
def test_a_fault_ends_with_newer_proof_of_the_kind_that_it_needs(signals, state):
    assert lived(signals).state() is state


@pytest.mark.parametrize(
    ("need", "before", "after"),
    [
        (Need.WATCH, [], READY),
        (Need.RESET, [], State.RESET),
        (Need.RESET, [passed(30)], READY),
        (Need.REBOOT, [], State.REBOOT),
        (Need.REBOOT, [passed(30)], READY),
        (Need.OPERATOR, [passed(30)], State.OPERATOR),
        (Need.OPERATOR, [ack("bad", 30), passed(40)], READY),
    ],
)
def test_a_new_boot_is_a_proof_and_a_restart_is_none(need, before, after):
    """Case S10: the same boot id never clears, a new one does together with a passed probe."""
    restarted = lived([seen(need)]).reboot(boot="boot-1").live(*before)
    rebooted = lived([seen(need)]).reboot().live(*before)
    untouched = {Need.WATCH: DEGRADED, Need.RESET: State.RESET, Need.REBOOT: State.REBOOT}
    if need in untouched:
        assert restarted.state() is untouched[need]
    assert rebooted.state() is after


def test_a_fault_seen_again_after_the_boot_needs_another_one():
    node = lived([seen(Need.REBOOT)]).reboot().live(seen(Need.REBOOT, at=20), passed(30))
    assert node.state() is State.REBOOT


def test_a_gpu_off_the_bus_comes_back_by_a_reset_too_once_a_probe_passes():
    """Case D36: the driver asks for a reset, the catalogue for a reboot; reboot is shown."""
    node = lived([fault("xid-79", Need.REBOOT, 10)])
    assert node.state() is State.REBOOT
    assert node.live(reset(20)).state() is State.REBOOT
    assert node.live(passed(30)).state() is READY


def test_two_faults_end_each_by_its_own_proof():
    """Case S2: a grave fault, then a harmless one; both are listed, nothing is lowered."""
    node = lived([fault("xid-79", Need.REBOOT, 10), fault("xid-13", Need.NOTHING, 20)])
    assert node.state() is State.REBOOT
    assert [r.item.name for r in node.device().reasons] == ["xid-79", "xid-13"]
    node.live(fault("xid-64", Need.OPERATOR, 21), reset(30), passed(40))
    assert node.names() == {"xid-64", "xid-13"}
    assert node.state() is State.OPERATOR


def test_applications_errors_never_withhold_and_a_cleared_fault_is_gone_without_a_restart():
    """Case S1."""
    node = lived([fault(f"xid-{n}", Need.NOTHING, 10, count=5000) for n in (13, 31, 43, 45, 68)])
    assert {node.state(each) for each in ("whole-0", "part-0-0")} == {READY}
    node.live(fault("xid-95", at=20)).reboot(boot="boot-1")
    assert node.state() is State.RESET
    assert node.live(reset(30), passed(40)).state() is READY


def test_memory_errors_that_were_dealt_with_leave_a_ready_gpu():
    """Case D28: contained, remapped, reset done."""
    node = lived(
        [
            fault("xid-94", Need.NOTHING, 10),
            fault("xid-63", Need.WATCH, 11),
            fault("row-remap-pending", Need.WATCH, 12, by=P),
        ]
    )
    assert node.state() is DEGRADED
    node.live(reset(20), well("row-remap-pending", 21))
    assert node.state() is READY


def test_an_unchanged_counter_says_nothing_and_a_rising_one_degrades_until_it_rests():
    """Case D22, as far as evidence goes: a lifetime counter is no signal, a rate is."""
    node = lived([well("nvlink-errors", 10)])
    assert node.state() is READY
    assert node.live(fault("nvlink-errors", Need.WATCH, 20, by=P)).state() is DEGRADED
    assert node.live(well("nvlink-errors", 30)).state() is READY


def test_what_was_only_shown_is_of_the_boot_before():
    node = lived([fault("xid-13", Need.NOTHING, 10), fault("xid-95", at=10)]).reboot()
    assert node.names() == {"xid-95"}


def test_what_a_test_injects_is_shown_withholds_nothing_and_hides_nothing():
    node = lived([fault("xid-149", at=10, injected=True)])
    assert (node.state(), [r.item.name for r in node.device().reasons]) == (READY, ["xid-149"])
    assert node.live(fault("xid-149", at=11)).state() is State.RESET


def test_the_next_step_is_told_at_every_stage():
    node = lived([seen(Need.OPERATOR), seen(Need.RESET, P)])
    assert node.device().waits_for == (Step.RESET, Step.OPERATOR)
    node.live(reset(20))
    assert node.device().waits_for == (Step.OPERATOR, Step.PROBE)
    node.live(ack("bad", 25))
    assert node.device().waits_for == (Step.PROBE,)
    assert NODE not in {r.item.scope for r in node.device().reasons}


@pytest.mark.parametrize(
    ("signals", "state"),
    [
        ([fault("xid-63", Need.WATCH, 10)], DEGRADED),
        # too early: the state may not be up to date
        ([fault("xid-63", Need.WATCH, 10), well("row-remap-pending", 12)], DEGRADED),
        ([fault("xid-63", Need.WATCH, 10), well("row-remap-pending", 15)], READY),
        ([fault("xid-92", Need.WATCH, 10), well("row-remap-pending", 15)], DEGRADED),
        ([fault("xid-63", Need.WATCH, 10), well("row-remap-failure", 15)], DEGRADED),
    ],
)
def test_what_an_event_told_of_a_memory_row_holds_while_a_row_is_pending(signals, state):
    assert lived(signals).state() is state
