"""When a probe is asked for, of what, and how often; and what an operator may take over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from driver.core.health.acknowledge import NotAcknowledged, check
from driver.core.health.evidence import damaged, probe_started
from driver.core.health.items import Identity
from driver.core.health.signals import Need, Scope, Source
from driver.core.health.wishes import next_due, wanted_probes
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
    passed,
    reset,
    well,
    without_gpu,
)

P = Source.POLL


def wanted(node: Node) -> list[Scope]:
    return [wish.scope for wish in wanted_probes(node.evidence, node.now, node.identity)]


W0 = Scope(gpu=G0)


@pytest.mark.parametrize(
    ("signals", "scopes"),
    [
        ([], []),
        ([fault("a", Need.NOTHING)], []),
        ([fault("a", Need.PROBE)], [W0]),
        ([fault("a", Need.PROBE, on=PART)], [PART]),
        ([fault("a", Need.PROBE, on=Scope(gpu=G0, gi=7))], [W0]),
        ([fault("a", Need.WATCH)], []),
        ([fault("a")], []),
        ([fault("a"), reset(5)], [W0]),
        ([fault("a", on=PART), reset(5)], [PART]),
        ([fault("a"), reset(5), passed(6)], []),
        ([fault("a"), fault("b", Need.REBOOT), reset(5)], []),
        ([fault("a", Need.PROBE, on=PART), fault("b", on=Scope(gpu=G0, gi=2))], [PART]),
        ([fault("a", Need.PROBE, on=PART), fault("b")], []),
        ([fault("a", Need.PROBE), fault("b", Need.REBOOT, on=None)], []),
        ([fault("a", by=P), well("a", 5)], [W0]),
        ([fault("a", Need.OPERATOR), ack("a", 5)], [W0]),
        ([cannot_tell("nvml", 0), fault("z", Need.NOTHING, 99)], []),
        ([cannot_tell("probe-hangs", 0, by=Source.PROBE)], [W0]),
    ],
)
def test_a_probe_is_asked_for_where_a_pass_would_end_something(signals, scopes):
    assert wanted(lived(signals)) == scopes


def test_after_damage_every_gpu_is_to_be_probed():
    node = Node(evidence=damaged("torn", boot_id="boot-1", now=0))
    assert wanted(node) == [Scope(gpu=gpu) for gpu in GPUS]
    assert wanted(node.live(passed(5, G1))) == [Scope(gpu=g) for g in GPUS if g != G1]


def test_a_probe_that_does_not_pass_is_tried_less_and_less_often_and_a_pass_forgets_that():
    node = lived([fault("a", Need.PROBE)])
    pauses = []
    for _ in range(9):
        node.evidence = probe_started(node.evidence, W0, node.now)
        due = next_due(wanted_probes(node.evidence, node.now, IDENTITY))
        assert due is not None
        pauses.append(due - node.now)
        node.now = due
    assert pauses == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    node.live(passed(node.now), fault("a", Need.PROBE, node.now + 1))
    assert [w.due for w in wanted_probes(node.evidence, node.now, IDENTITY)] == [node.now]
    assert next_due(()) is None


BOARD = [fault("xid-64", Need.OPERATOR, 10)]
ROWS = [fault("row-remap-failure", Need.OPERATOR, 10, by=P)]


@pytest.mark.parametrize(
    ("signals", "wish", "says"),
    [
        ([], ack("xid-64", 20), "nothing is held against it by that name; open are: none"),
        (BOARD, ack("xid-63", 20), "open are: xid-64"),
        (BOARD, ack("xid-64", 20, on=G1, serial="serial-GPU-0"), "nothing is held against it"),
        (BOARD, ack("xid-64", 20, serial="7"), "serial number is serial-GPU-0, not '7'"),
        (BOARD, ack("xid-64", 9), "seen again meanwhile"),
        (ROWS, ack("row-remap-failure", 20), "nvml-poll still reports it"),
        ([fault("xid-95", at=10)], ack("xid-95", 20), "needs a reset, not an acknowledgement"),
        ([cannot_tell("nvml", 10)], ack("nvml", 20), "needs a look, not an acknowledgement"),
        ([fault("xid-13", Need.NOTHING, 10)], ack("xid-13", 20), "nothing is held against it"),
    ],
)
def test_an_acknowledgement_is_refused_with_the_reason_and_changes_nothing(signals, wish, says):
    """Case S7: scoped to one item and one board, and refused while the fault persists."""
    node = lived(signals).reboot("boot-1")
    with pytest.raises(NotAcknowledged, match=f"{wish.name} on {wish.gpu}") as refused:
        check(node.evidence, wish, IDENTITY)
    assert says in str(refused.value)
    before = node.evidence
    assert node.live(wish).evidence is before


def test_an_acknowledgement_names_who_gave_it():
    nobody = ack("xid-64", 20)
    with pytest.raises(NotAcknowledged, match="say who"):
        check(lived(BOARD).evidence, replace(nobody, by=" "), IDENTITY)


def test_an_acknowledgement_that_is_in_order_passes_and_is_kept():
    node = lived([*ROWS, well("row-remap-failure", 15)])
    check(node.evidence, ack("row-remap-failure", 20), IDENTITY)
    node.live(ack("row-remap-failure", 20))
    (reason,) = node.device().reasons
    assert reason.item.acknowledged == ack("row-remap-failure", 20)


def test_a_board_without_a_readable_serial_number_is_named_by_its_gpus_uuid():
    bare = Node(identity=Identity(serials=dict.fromkeys(GPUS, "")))
    bare.live(*BOARD)
    with pytest.raises(NotAcknowledged, match="give the GPU's UUID in its place"):
        check(bare.evidence, ack("xid-64", 20, serial="7"), bare.identity)
    bare.live(ack("xid-64", 20, serial=G0), passed(30))
    assert bare.names() == set()


def test_what_is_held_against_a_board_that_was_taken_out_is_ended_by_its_serial_number():
    node = lived([fault("xid-79", Need.REBOOT, 10), fault("nvlink-down", at=10, by=P)]).reboot()
    node.identity = without_gpu(G0)
    node.live(ack("xid-79", 20, serial="other"))
    assert node.names() == {"xid-79", "nvlink-down"}
    node.live(ack("xid-79", 30), ack("nvlink-down", 30))
    assert node.names() == set()
