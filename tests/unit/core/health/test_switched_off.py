"""A source that an administrator has switched off: what it told is then like what an event told."""

from __future__ import annotations

import pytest

from driver.core.health.acknowledge import NotAcknowledged, check
from driver.core.health.evidence import begun, unasked
from driver.core.health.explain import explain
from driver.core.health.judgement import State
from driver.core.health.signals import Need, Source
from driver.state.evidence_file import decode, encode
from tests.unit.core.health.given_health import (
    IDENTITY,
    Node,
    ack,
    fault,
    lived,
    passed,
    reset,
    well,
)

DCGM = Source.DCGM


def told(need: Need) -> Node:
    return lived([fault("row", need, 10, by=DCGM)])


def restart(node: Node, *off: Source, boot: str = "boot-1") -> Node:
    """With the evidence as it is on disk, and these sources switched off."""
    stored = decode(encode(node.evidence, node="n"), node="n", name="f")
    node.boot = boot
    node.evidence = unasked(begun(stored, boot_id=boot, now=node.now), off)
    return node


def test_an_operator_answers_for_what_a_source_told_that_is_switched_off() -> None:
    node = told(Need.OPERATOR)
    with pytest.raises(NotAcknowledged, match="dcgm still reports it"):
        check(node.evidence, ack("row", 20), IDENTITY)
    restart(node, DCGM)
    assert node.state() is State.OPERATOR
    assert node.live(passed(15)).state() is State.OPERATOR
    check(node.evidence, ack("row", 20), IDENTITY)
    assert node.live(ack("row", 20)).state() is State.OPERATOR
    assert node.live(passed(30)).state() is State.READY


def test_a_source_that_is_given_again_is_asked_again() -> None:
    node = restart(restart(told(Need.OPERATOR), DCGM))
    with pytest.raises(NotAcknowledged, match="dcgm still reports it"):
        check(node.evidence, ack("row", 20), IDENTITY)


def test_what_it_saw_to_be_in_order_before_still_counts() -> None:
    node = restart(told(Need.RESET).live(well("row", 20, by=DCGM)), DCGM)
    assert node.live(passed(30)).state() is State.READY


def test_what_was_only_watched_ends_with_a_reset() -> None:
    node = restart(told(Need.WATCH), DCGM)
    assert node.state() is State.DEGRADED
    assert "a GPU reset" in explain(node.device())[-1]
    assert node.live(reset(20)).state() is State.READY


def test_what_was_only_watched_ends_with_the_boot_in_which_the_source_was_switched_off() -> None:
    assert restart(told(Need.WATCH), boot="boot-2").state() is State.DEGRADED
    assert restart(told(Need.WATCH), DCGM, boot="boot-2").state() is State.READY
