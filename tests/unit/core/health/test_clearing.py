"""Playbooks: what happens to a GPU, and whether it may be used again afterwards."""

from __future__ import annotations

import pytest

from driver.core.health.evidence import damaged, unasked
from driver.core.health.items import DAMAGED, Identity
from driver.core.health.judgement import State
from driver.core.health.proof import Step
from driver.core.health.signals import NODE, Need, Scope, Signal, Source
from tests.unit.core.health.given_health import (
    G0,
    G1,
    GPUS,
    IDENTITY,
    PART,
    Node,
    ack,
    cannot_tell,
    fault,
    lived,
    overruled,
    passed,
    reset,
    well,
)

K, P, E = Source.KERNEL, Source.POLL, Source.EVENTS
READY, DEGRADED, UNKNOWN = State.READY, State.DEGRADED, State.UNKNOWN


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
        # a probe that failed is a fault like others
        ([seen(Need.RESET, Source.PROBE), passed(20)], State.RESET),
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


@pytest.mark.parametrize(
    ("signals", "state"),
    [
        ([passed(30)], State.RESET),
        ([well("recovery-action", 20)], State.RESET),
        ([well("recovery-action", 20), cannot_tell("recovery-action", 25)], State.RESET),
        ([well("recovery-action", 20), fault("probe-failed", at=30, by=Source.PROBE)], State.RESET),
        ([well("recovery-action", 20), passed(30)], READY),
    ],
)
def test_the_advice_gone_and_a_passed_probe_clear_all_that_a_reset_clears(signals, state):
    """Case S3. The advice goes back with a reset alone, so the other items may be proved too."""
    sick = [fault("xid-119", at=9), fault("recovery-action", at=10, by=P)]
    assert lived([*sick, *signals]).state() is state


def test_that_the_gpu_no_more_asks_for_a_reboot_says_nothing_of_a_reset():
    sick = [fault("xid-119", at=9), fault("recovery-action", Need.REBOOT, 10, by=P)]
    node = lived([*sick, well("recovery-action", 20), passed(30)])
    assert (node.names(), node.state()) == ({"xid-119"}, State.RESET)


def test_the_advice_of_a_log_line_ends_when_a_look_finds_none():
    told = fault("recovery-action", at=10, by=K)
    assert lived([told, well("recovery-action", 20), passed(30)]).state() is READY


def test_that_the_gpu_asks_for_nothing_proves_no_reset_where_it_never_asked_for_one():
    node = lived([fault("xid-119", at=10), well("recovery-action", 20), passed(30)])
    assert node.state() is State.RESET


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


def test_what_cannot_be_told_withholds_after_a_while_and_ends_with_a_look():
    node = lived([cannot_tell("nvml", 10, on=None)])
    assert (node.device("whole-3", 69).state, node.at(69).due) == (READY, 70)
    assert (node.device("whole-3", 70).state, node.at(70).due) == (UNKNOWN, None)
    node.live(cannot_tell("nvml", 90, on=None))
    assert node.state() is UNKNOWN
    assert node.live(well("nvml", 80, on=None), passed(95)).state() is UNKNOWN
    assert node.live(well("nvml", 100, on=None)).state() is READY


def test_a_look_that_finds_a_fault_ends_that_nobody_could_tell():
    node = lived([cannot_tell("pcie-link", 10), fault("pcie-link", Need.WATCH, 90, by=P)])
    assert node.state() is DEGRADED


def test_a_fault_stays_when_it_can_no_longer_be_looked_at():
    node = lived([fault("gpu-lost", at=10, by=P), cannot_tell("gpu-lost", 20)])
    assert node.state() is State.RESET


def test_a_probe_that_could_not_run_is_answered_by_one_that_did():
    node = lived([cannot_tell("probe-hangs", 10, by=Source.PROBE), passed(100)])
    assert node.names() == set()


def test_a_second_opinion_that_is_away_withholds_nothing():
    node = lived([cannot_tell("dcgm", 10, on=None, by=Source.DCGM)])
    assert {j.state for j in node.at(1e6).devices.values()} == {READY}


def test_that_a_probe_has_to_wait_withholds_nothing():
    node = lived([cannot_tell("probe-busy", 10, by=Source.PROBE)])
    assert node.device(now=1e6).state is READY
    assert node.at(1e6).due is None


def test_what_a_source_of_the_boot_before_could_not_tell_is_settled_by_a_probe():
    node = lived([cannot_tell("fabric-health", 10), cannot_tell("fabric-health", 90)]).reboot()
    assert node.state() is UNKNOWN
    assert node.live(passed(100)).state() is READY


def test_a_source_that_is_switched_off_is_waited_for_no_more_but_its_faults_stay():
    node = lived([cannot_tell("kmsg", 1, on=None, by=K), fault("xid-95", at=2)])
    node.evidence = unasked(node.evidence, {K})
    assert node.names() == {"xid-95"}


def test_a_fault_of_the_node_ends_once_every_gpu_has_proved_itself():
    node = lived([fault("sxid-1", Need.REBOOT, 10, on=None)]).reboot()
    assert node.state("whole-3") is State.REBOOT
    node.live(passed(20, GPUS[3]), passed(20, Scope(gpu=G0, gi=1)))
    assert (node.state("whole-3"), node.state("whole-0")) == (READY, State.REBOOT)
    assert node.at(20).node.state is State.REBOOT
    node.live(*(passed(21, gpu) for gpu in GPUS[:3]))
    assert node.names() == set()


def test_a_fault_of_the_node_seen_again_is_to_be_proved_by_every_gpu_again():
    node = lived([fault("node-1", Need.PROBE, 10, on=None), passed(20, GPUS[3])])
    node.live(fault("node-1", Need.PROBE, 30, on=None), *(passed(40, gpu) for gpu in GPUS[:3]))
    assert (node.state("whole-0"), node.state("whole-3")) == (READY, DEGRADED)


def test_what_was_only_shown_is_of_the_boot_before():
    node = lived([fault("xid-13", Need.NOTHING, 10), fault("xid-95", at=10)]).reboot()
    assert node.names() == {"xid-95"}


@pytest.mark.parametrize("need", [Need.RESET, Need.REBOOT, Need.OPERATOR])
def test_a_state_of_the_node_in_order_again_is_proved_by_probes_without_a_boot(need):
    """Case D31: the missing device node is back."""
    node = lived([fault("no-uvm", need, 10, on=None, by=Source.NODES)])
    node.live(*(passed(20, gpu) for gpu in GPUS))
    assert node.state().hard
    node.live(well("no-uvm", 30, on=None, by=Source.NODES), *(passed(40, g) for g in GPUS))
    assert node.names() == set()


def test_evidence_that_is_lost_withholds_every_gpu_at_once_until_its_own_probe_passes():
    node = Node(evidence=damaged("checksum", boot_id="boot-1", now=5.0), now=5.0)
    assert {j.state for j in node.at(5).devices.values()} == {UNKNOWN}
    node.live(well(DAMAGED, 10, on=None, by=Source.PROBE), reset(10)).reboot()
    assert node.state("whole-0") is UNKNOWN
    node.live(passed(20, G1))
    assert (node.state("whole-1"), node.state("whole-0")) == (READY, UNKNOWN)
    assert node.live(*(passed(30, gpu) for gpu in GPUS)).names() == set()


def test_a_partition_is_judged_alone_and_its_slots_keep_the_fault_when_it_is_gone():
    node = lived([fault("xid-95", at=10, on=PART)])
    assert node.state("part-0-0") is State.RESET
    assert node.state("small-0-1") is State.RESET
    assert node.state("part-0-2") is READY
    assert node.state("whole-0") is State.RESET
    node.identity = Identity(
        serials=IDENTITY.serials, places={(G0, 1): 0b1100, (G0, 5): 0b0001, (G0, 6): 0b1111}
    )
    node.live(reset(20), passed(30, PART), passed(31, Scope(gpu=G0, gi=5)))
    assert node.state("part-0-0") is State.RESET
    assert node.state("part-0-2") is READY
    assert node.live(passed(40, Scope(gpu=G0, gi=6))).state("part-0-0") is READY


def test_an_instance_id_that_is_used_again_elsewhere_makes_both_places_sick():
    node = lived([fault("xid-95", at=10, on=PART)])
    node.identity = Identity(serials=IDENTITY.serials, places={(G0, 1): 0b1000})
    node.live(fault("xid-95", at=20, on=PART))
    assert {node.state(name) for name in ("small-0-1", "part-0-2")} == {State.RESET}


def test_an_instance_that_nobody_knows_stands_for_its_gpu():
    node = lived([fault("xid-95", at=10, on=Scope(gpu=G0, gi=9, ci=0))])
    assert node.state("part-0-2") is State.RESET
    node.live(reset(20), passed(30, Scope(gpu=G0, gi=9, ci=0)))
    assert node.state("part-0-2") is State.RESET
    assert node.live(passed(40)).state("part-0-2") is READY


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


def test_dcgm_and_the_kernel_log_disagree_and_the_gpu_decides():
    """Case D8: both stay visible; without the GPU's own word the graver one holds."""
    node = lived(
        [
            fault("xid-145", Need.RESET, 10, by=Source.DCGM),
            fault("xid-145", Need.WATCH, 10, by=K),
            well("recovery-action", 12),
        ]
    )
    assert node.state() is State.RESET
    node.live(well("recovery-action", 20))
    assert node.state() is DEGRADED
    assert {r.item.source for r in node.device().reasons} == {Source.DCGM, K}
    assert node.live(fault("xid-145", Need.RESET, 30, by=Source.DCGM)).state() is State.RESET


@pytest.mark.parametrize(
    ("signals", "state"),
    [
        ([seen(Need.RESET), overruled(20)], DEGRADED),
        ([seen(Need.RESET), overruled(20), passed(30)], READY),
        ([seen(Need.RESET), overruled(10), passed(30)], State.RESET),
        ([seen(Need.RESET), overruled(20, by=E), passed(30)], State.RESET),
        ([seen(Need.RESET), overruled(20), seen(Need.PROBE, at=25)], State.RESET),
        ([seen(Need.REBOOT), overruled(20), passed(30)], State.REBOOT),
        ([seen(Need.OPERATOR), overruled(20), passed(30)], State.OPERATOR),
        ([seen(Need.RESET), fault("recovery-action", at=15, by=P), overruled(20)], State.RESET),
    ],
)
def test_where_the_gpu_asks_for_no_reset_a_probe_decides(signals, state):
    """Case D16: the recovery action decides what the catalogue would have reset for."""
    assert lived(signals).state() is state


def test_the_gpus_word_overrules_nobody_but_dcgm():
    signals = [fault("xid-145", by=K, at=10), fault("xid-145", Need.WATCH, 10, by=E)]
    assert lived([*signals, well("recovery-action", 30)]).state() is State.RESET


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
