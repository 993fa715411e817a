"""What arrives in masses, comes back, comes from everywhere at once, or has no end."""

from __future__ import annotations

from math import inf, nan

import pytest

from driver.core.health.evidence import MAX_DETAIL, MAX_TRIES, probe_started, take
from driver.core.health.items import TOO_MANY, Identity, Kind
from driver.core.health.judgement import State
from driver.core.health.room import DAY, MAX_GPUS, MAX_OPEN, MAX_SHOWN
from driver.core.health.signals import Fault, Need, Scope, Signal, Source
from driver.core.health.wishes import wanted_probes
from driver.core.ids import GpuUuid
from tests.unit.core.health.given_health import (
    G0,
    G1,
    G2,
    G3,
    GPUS,
    IDENTITY,
    PART,
    Node,
    cannot_tell,
    fault,
    lived,
    overruled,
    passed,
    reset,
    well,
)

K, P = Source.KERNEL, Source.POLL


def cycle(node: Node, need: Need = Need.RESET, *, after: float = 10.0) -> State:
    """The fault comes, is judged, and everything that it could need is done."""
    start = node.now + after
    node.live(fault("xid-95", need, start))
    state = node.state()
    node.reboot(f"boot-{start}").live(reset(start + 1), passed(start + 2))
    return state


def test_ten_thousand_equal_signals_change_one_counter():
    node = lived([fault("xid-45", Need.NOTHING, n / 1000) for n in range(10_000)])
    (item,) = node.evidence.items.values()
    assert (item.count, item.first, item.last) == (10_000, 0.0, 9.999)
    assert node.state() is State.READY


def test_what_does_not_help_twice_is_escalated():
    node = Node()
    assert [cycle(node) for _ in range(4)] == [
        State.RESET,
        State.RESET,
        State.REBOOT,
        State.OPERATOR,
    ]
    assert node.state() is State.OPERATOR


def test_a_fault_that_needs_a_reboot_is_for_an_operator_at_its_second_return():
    node = Node()
    assert [cycle(node, Need.REBOOT) for _ in range(3)] == [
        State.REBOOT,
        State.REBOOT,
        State.OPERATOR,
    ]


def test_a_fault_that_comes_back_after_more_than_a_day_is_new():
    node = Node()
    assert [cycle(node, after=DAY + 10) for _ in range(4)] == [State.RESET] * 4


def test_two_sources_of_one_fault_count_as_one_return():
    node = Node()
    for start in (10, 20):
        node.live(fault("xid-95", at=start), fault("xid-95", at=start, by=Source.EVENTS))
        assert {i.returns for i in node.evidence.items.values()} == {start // 10 - 1}
        node.live(reset(start + 1), passed(start + 2))
    assert node.names() == set()


def test_of_two_items_that_end_at_once_the_one_that_came_back_more_often_counts():
    node = lived([fault("xid-95", at=10), reset(11), passed(12)])
    node.live(fault("xid-95", Need.WATCH, 19, by=Source.EVENTS), fault("xid-95", at=20))
    node.live(fault("xid-95", at=20.5, by=Source.EVENTS), reset(21), passed(22))
    node.live(fault("xid-95", at=30))
    assert node.state() is State.REBOOT


def test_a_late_copy_of_a_cleared_fault_is_no_return():
    node = lived([fault("xid-95", at=10), reset(20), passed(30)])
    node.live(fault("xid-95", at=9, by=Source.EVENTS))
    (item,) = node.evidence.items.values()
    assert item.returns == 0


def test_a_state_that_flaps_proves_nothing_by_being_in_order_again():
    node = Node()
    for start in (10, 20, 30):
        node.live(fault("nvlink-down", at=start, by=P), well("nvlink-down", start + 1))
        node.live(passed(start + 2))
    assert node.state() is State.REBOOT
    assert node.reboot().live(passed(50)).state() is State.READY


def crash(at: float, place: str, name: str = "xid-13", on: GpuUuid | Scope = G0) -> Fault:
    return fault(name, Need.NOTHING, at, place=place, on=on)


@pytest.mark.parametrize(
    ("signals", "repeated"),
    [
        ([crash(0, "gpc1-tpc2"), crash(100, "gpc1-tpc2")], True),
        ([crash(0, "gpc1-tpc2"), crash(100, "gpc1-tpc2", on=PART)], True),
        ([crash(n / 10, "gpc1-tpc2") for n in range(3000)], False),
        ([crash(0, "gpc1-tpc2"), crash(100, "gpc1-tpc3")], False),
        ([crash(0, "gpc1-tpc2"), crash(100, "gpc1-tpc2", on=G1)], False),
        ([crash(0, "gpc1-tpc2"), crash(DAY + 1, "gpc1-tpc2")], False),
        ([crash(0, ""), crash(100, "")], False),
        ([crash(0, "a", "xid-31"), crash(100, "b", "xid-31")], True),
        ([crash(0, "a", "xid-31"), crash(100, "a", "xid-31")], False),
        ([crash(0, "a", "xid-31"), crash(100, "b", "xid-31", on=G1)], False),
        ([crash(0, "a", "xid-45"), crash(100, "a", "xid-45")], False),
    ],
)
def test_application_errors_that_repeat_in_a_telling_way_want_a_probe(signals, repeated):
    node = lived(signals)
    name = f"{signals[0].name}-repeated"
    assert (name in node.names()) is repeated
    assert node.state() is (State.DEGRADED if repeated else State.READY)
    wishes = wanted_probes(node.evidence, node.now, IDENTITY)
    assert [wish.names for wish in wishes] == ([(name,)] if repeated else [])
    later = node.live(passed(node.now + 1, G0))
    assert later.state() is State.READY


def sick(*gpus: GpuUuid, at: float = 10, by: Source = P) -> list[Fault]:
    return [fault("look-7", at=at, on=gpu, by=by) for gpu in gpus]


@pytest.mark.parametrize(
    ("signals", "state"),
    [
        (sick(G0, G1), State.RESET),
        (sick(G1, G2, G0), State.UNKNOWN),
        (sick(G0, G1, G2, by=Source.PROBE), State.UNKNOWN),
        (sick(G0, G1, G2, by=K), State.RESET),
        (sick(G1, G2) + sick(G0, at=71), State.RESET),
        ([fault("xid-79", at=5, on=G1), *sick(G0, G1, G2)], State.RESET),
        ([fault("recovery-action", at=5, on=G1, by=P), *sick(G0, G1, G2)], State.RESET),
        ([*sick(G0, G1, G2), fault("xid-119", at=20)], State.RESET),
        ([*sick(G0, G1, G2), well("look-7", 20), passed(30)], State.READY),
        ([*sick(G0, G1, G2), passed(30)], State.UNKNOWN),
        ([*sick(G0, G1, G2, by=Source.PROBE), passed(30)], State.READY),
        ([*sick(G1, G2, G0, by=Source.PROBE), passed(30, G1), passed(31, G2)], State.UNKNOWN),
    ],
)
def test_when_most_gpus_turn_sick_at_once_the_monitor_is_suspect(signals, state):
    node = lived(signals)
    assert node.state() is state


def test_partitions_raise_no_suspicion():
    node = lived([*sick(G1, G2), fault("look-7", at=10, on=PART, by=P)])
    assert {node.state("whole-1"), node.state("part-0-0")} == {State.RESET}


def test_two_gpus_are_too_few_to_suspect_anybody():
    few = Node(identity=Identity(serials={G0: "1", G1: "2"}))
    assert few.live(*sick(G0, G1)).state() is State.RESET


def test_a_suspicion_is_no_return_once_it_has_ended():
    node = lived([*sick(*GPUS), well("look-7", 20), passed(30), *sick(G0, at=40)])
    assert [i.returns for i in node.evidence.items.values() if i.scope.gpu == G0] == [0]


def test_whatever_arrives_is_bounded_and_still_withholds():
    flood = [
        fault(f"{by}-{n}" * 50, need, n, on=on, by=by, place="p" * 999)
        for by in Source
        for n, need in enumerate([*Need] * 20)
        for on in (None, G0, G3, Scope(gpu=G0, gi=n))
    ]
    node = lived([*flood, *(cannot_tell(f"look-{n}", 200, on=G0) for n in range(100))])
    subjects = 3
    most = MAX_OPEN + len(Source) * len(Kind) + MAX_SHOWN
    assert len(node.evidence.items) <= subjects * most
    assert node.state() is State.OPERATOR
    assert node.state("whole-3") is State.OPERATOR
    assert TOO_MANY in node.names()
    assert max(len(i.detail) for i in node.evidence.items.values()) <= MAX_DETAIL


def test_what_found_no_room_ends_by_the_proof_that_the_worst_of_it_needs():
    node = lived([fault(f"e-{n}", Need.WATCH, n, on=G1) for n in range(MAX_OPEN)])
    node.live(fault("one-more", at=100, on=G1), fault("last", Need.WATCH, 101, on=G1))
    assert node.state("whole-1") is State.RESET
    node.live(reset(110, G1), passed(120, G1))
    assert node.names() == set()


def test_gpus_that_went_for_good_make_way_the_oldest_first_and_no_gpu_of_the_node_does():
    gone = [GpuUuid(f"GPU-gone-{n:02}") for n in range(2 * MAX_GPUS)]
    node = lived([*sick(G0), *(fault("xid-79", at=100 + n, on=g) for n, g in enumerate(gone))])
    held = {item.scope.gpu for item in node.evidence.items.values()}
    assert held == {G0, *gone[-MAX_GPUS + 1 :]}


def test_attempts_to_probe_are_bounded():
    node = Node()
    for n in range(3 * MAX_TRIES):
        node.evidence = probe_started(node.evidence, Scope(gpu=G0, gi=n), float(n))
    assert len(node.evidence.tries) == MAX_TRIES


@pytest.mark.parametrize("at", [nan, inf, -inf, 1e300])
def test_a_time_that_is_none_makes_a_fault_of_now_and_is_no_proof(at):
    node = Node(now=50.0)
    node.evidence = node.live(fault("xid-95", at=40)).evidence
    strange = Node(evidence=node.evidence, now=50.0)
    for signal in (reset(at), passed(at), fault("xid-119", at=at)):
        strange.evidence = _taken(strange, signal)
    newest = {item.name: item.last for item in strange.evidence.items.values()}
    assert newest == {"xid-95": 40, "xid-119": 50}
    assert strange.state() is State.RESET


def test_a_proof_made_before_the_clock_was_set_back_proves_nothing():
    node = lived([fault("xid-95", at=1000), reset(1010), fault("xid-95", at=1020)])
    node.now = 500.0
    for signal in (reset(1015), passed(1016)):
        node.evidence = _taken(node, signal)
    assert node.state() is State.RESET
    assert node.live(reset(501), passed(502)).state() is State.READY


def _taken(node: Node, signal):
    return take(node.evidence, signal, boot_id=node.boot, now=node.now, identity=IDENTITY)


def test_threads_that_overtake_each_other_are_no_clock_set_back():
    node = lived([fault("xid-95", at=1000), reset(1000.5)])
    node.now = 1000.0
    node.evidence = _taken(node, fault("xid-13", Need.NOTHING, 999.9))
    times = {(i.name, i.last, i.reset) for i in node.evidence.items.values()}
    assert times == {("xid-95", 1000, 1000.5), ("xid-13", 999.9, None)}


def set_back(*signals: Signal) -> Node:
    """The clock goes from 1010 to 500, and all that was seen goes with it."""
    node = lived([*signals, fault("xid-13", Need.NOTHING, 1010)])
    node.now = 500.0
    return node


def test_what_was_proved_by_the_clock_before_is_proved_by_the_one_after():
    node = set_back(fault("gpu-lost", at=900, by=P), well("gpu-lost", 910))
    assert node.live(passed(501)).state() is State.READY


def test_what_the_gpu_overruled_before_the_clock_was_set_back_is_not_overruled_for_ever():
    node = set_back(fault("bad", at=900), overruled(910))
    assert node.live(fault("bad", at=501)).state() is State.RESET


def test_a_probe_on_its_way_while_the_clock_was_set_back_does_not_look_newer_than_the_reset():
    node = set_back(fault("xid-95", at=900), reset(910))
    node.evidence = _taken(node, passed(905))
    assert node.state() is State.RESET


def test_a_fault_that_is_older_than_the_question_does_not_answer_it():
    node = lived([cannot_tell("pcie-link", 10), cannot_tell("pcie-link", 90)])
    assert node.live(fault("pcie-link", Need.WATCH, 80, by=P)).state() is State.UNKNOWN
