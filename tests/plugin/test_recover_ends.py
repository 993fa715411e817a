"""Ends of claims that a watch tells: when recovery looks, and what that costs."""

from __future__ import annotations

import threading

import pytest

from tests.plugin.recovering import GRACE, Node
from tests.plugin.test_recover import SMALL


@pytest.fixture
def node() -> Node:
    return Node()


def test_a_claim_that_the_watch_saw_go_has_its_grace_from_then_on(node: Node) -> None:
    ref = node.run("a", SMALL)
    node.delete(ref)
    node.recovery.ended(ref.uid)
    node.now += GRACE
    assert node.recovery.is_left()
    assert node.after(0) == [("take_back", "done")]


def test_but_what_the_watch_says_is_no_proof(node: Node) -> None:
    ref = node.run("a", SMALL)
    node.recovery.ended(ref.uid)
    assert node.after(GRACE) == []
    node.delete(ref)
    assert node.after(GRACE - 1) == []


def test_a_claim_that_the_kubelet_took_back_in_time_costs_no_request(node: Node) -> None:
    ref = node.run("a", SMALL)
    node.delete(ref)
    stop, slept = threading.Event(), list[float]()
    looks = iter([300.0])

    def wait(timeout: float | None) -> bool:
        """Instead of sleeping: time passes, and things happen."""
        assert timeout is not None
        slept.append(timeout)
        if len(slept) == 1:
            node.recovery.ended(ref.uid)
            return True
        node.unprepare(ref)
        node.now += timeout
        if len(slept) == 3:
            stop.set()
        return False

    node.recovery._wakeup.wait = wait  # type: ignore[method-assign]
    node.recovery.look = looks.__next__  # type: ignore[method-assign]
    node.recovery.run(stop)
    assert slept == [300.0, GRACE, 300.0 - GRACE]


def test_a_claim_that_it_never_took_back_is_looked_at_when_its_grace_is_over(node: Node) -> None:
    ref = node.run("a", SMALL)
    node.delete(ref)
    stop = threading.Event()
    begun = node.now
    looked: list[float] = []

    def wait(timeout: float | None) -> bool:
        assert timeout is not None
        if node.now == begun:
            node.recovery.ended(ref.uid)
        node.now += min(timeout, GRACE)
        return False

    def look() -> float:
        looked.append(node.now - begun)
        if len(looked) == 2:
            stop.set()
        return 300.0

    node.recovery._wakeup.wait = wait  # type: ignore[method-assign]
    node.recovery.look = look  # type: ignore[method-assign]
    node.recovery.run(stop)
    assert looked == [0.0, GRACE]


def test_an_entry_that_somebody_missed_is_looked_for_at_once(node: Node) -> None:
    stop, slept = threading.Event(), list[float]()

    def wait(timeout: float | None) -> bool:
        assert timeout is not None
        slept.append(timeout)
        if len(slept) == 1:
            for _ in range(3):
                node.recovery.lost()
            return True
        node.now += timeout
        if len(slept) == 3:
            stop.set()
        return False

    node.recovery._wakeup.wait = wait  # type: ignore[method-assign]
    node.recovery.run(stop)
    assert slept == [300.0, 1.0, 300.0]
