"""What cannot be looked at: when it withholds, and what answers it."""

from __future__ import annotations

from driver.core.health.evidence import damaged, unasked
from driver.core.health.items import DAMAGED
from driver.core.health.judgement import State
from driver.core.health.signals import Need, Source
from tests.unit.core.health.given_health import (
    G1,
    GPUS,
    Node,
    cannot_tell,
    fault,
    lived,
    passed,
    reset,
    well,
)

K, P = Source.KERNEL, Source.POLL
READY, DEGRADED, UNKNOWN = State.READY, State.DEGRADED, State.UNKNOWN


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


def test_evidence_that_is_lost_withholds_every_gpu_at_once_until_its_own_probe_passes():
    node = Node(evidence=damaged("checksum", boot_id="boot-1", now=5.0), now=5.0)
    assert {j.state for j in node.at(5).devices.values()} == {UNKNOWN}
    node.live(well(DAMAGED, 10, on=None, by=Source.PROBE), reset(10)).reboot()
    assert node.state("whole-0") is UNKNOWN
    node.live(passed(20, G1))
    assert (node.state("whole-1"), node.state("whole-0")) == (READY, UNKNOWN)
    assert node.live(*(passed(30, gpu) for gpu in GPUS)).names() == set()
