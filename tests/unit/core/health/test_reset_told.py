"""An operator's word that a GPU was reset: what it ends, what it cannot end, when it is refused."""

from __future__ import annotations

import pytest

from driver.core.health.evidence import probe_started
from driver.core.health.judgement import State
from driver.core.health.reset_told import NotReset, check
from driver.core.health.signals import Need, ResetSeen, Scope, Source
from driver.core.health.wishes import wanted_probes
from tests.unit.core.health.given_health import (
    G0,
    G1,
    IDENTITY,
    PART,
    Node,
    fault,
    lived,
    passed,
    without_gpu,
)


def said(at: float, by: str = "ann", on=G0) -> ResetSeen:
    return ResetSeen(gpu=on, at=at, by=by)


def told(node: Node, at: float) -> Node:
    check(node.evidence, [said(at)], node.identity)
    return node.live(said(at))


@pytest.mark.parametrize(
    "sign",
    [
        fault("xid-95", at=10),
        fault("xid-95", at=10, on=PART),
        fault("probe-wrong-result", at=10, by=Source.PROBE),
    ],
)
def test_what_needs_a_reset_comes_back_by_an_operators_word_and_a_probe_that_passes(sign):
    node = lived([sign])
    assert node.live(passed(15)).state() is State.RESET
    assert told(node, 20).state() is State.RESET
    assert node.live(passed(30)).state() is State.READY


@pytest.mark.parametrize(
    ("name", "need", "state"),
    [("xid-119", Need.REBOOT, State.REBOOT), ("xid-64", Need.OPERATOR, State.OPERATOR)],
)
def test_it_ends_nothing_that_needs_a_reboot_or_an_operator(name, need, state):
    node = told(lived([fault(name, need, 10), fault("xid-95", at=10)]), 20)
    assert node.live(passed(30)).state() is state


def test_it_makes_the_next_probe_come_at_once_however_many_failed_before():
    node = lived([fault("probe-error", at=10, by=Source.PROBE)])
    for _ in range(9):
        node.evidence = probe_started(node.evidence, Scope(gpu=G0), 10)
    (late,) = wanted_probes(node.evidence, node.now, IDENTITY)
    assert late.due > 300
    (now,) = wanted_probes(told(node, 20).evidence, node.now, IDENTITY)
    assert now.due == node.now


@pytest.mark.parametrize(
    ("word", "why"),
    [
        (said(20), "xid-95 was seen 1970-01-01 00:00:30Z, and since 1970-01-01 00:00:20Z this"),
        (said(40, " "), "say who has reset it"),
    ],
)
def test_it_is_refused_where_it_cannot_be_so(word, why):
    node = lived([fault("xid-95", at=30)])
    with pytest.raises(NotReset, match=f"GPU-0: {why}"):
        check(node.evidence, [said(40, on=G1), word], node.identity)


def test_it_is_refused_of_a_gpu_that_is_not_there():
    node = lived([fault("gpu-missing", at=10, by=Source.POLL)])
    with pytest.raises(NotReset, match="it is not there; `tessera status`"):
        check(node.evidence, [said(40)], without_gpu(G0))


def test_what_no_reset_would_end_does_not_make_it_false():
    node = lived([fault("xid-95", at=10), fault("xid-64", Need.OPERATOR, 30)])
    node.live(fault("probe-error", at=30, by=Source.PROBE), fault("xid-13", Need.NOTHING, 30))
    assert told(node, 20).live(passed(40)).names() == {"xid-64", "xid-13"}
