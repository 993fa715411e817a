"""What can be probed, and when it is its turn."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from driver.core.geometry import Placement
from driver.core.health.probe import Passed, ProbeTarget, Unresponsive
from driver.core.health.probing import (
    NotNow,
    Policy,
    Round,
    choose,
    next_due,
    proof,
    round_of,
    routine,
)
from driver.core.health.signals import ProbePassed, Scope
from driver.core.ids import GpuUuid
from driver.core.snapshot import ComputeFacts, GpuFacts, InstanceFacts, MigState, PciAddress

NOW = 1000.0
A = Scope(gpu=GpuUuid("A"))


def gpu(name="A", *, enabled=False, instances=()) -> GpuFacts:
    return GpuFacts(
        uuid=GpuUuid(name),
        index=0,
        minor=0,
        pci=PciAddress(domain=0, bus=1, device=0),
        product="GPU",
        memory=None,
        mig=MigState(capable=True, enabled=enabled, instances=tuple(instances)),
    )


def instance(gi: int, *compute: tuple[int, str]) -> InstanceFacts:
    return InstanceFacts(
        id=gi,
        profile_id=19,
        placement=Placement(start=gi, size=1),
        compute=tuple(ComputeFacts(id=ci, uuid=uuid) for ci, uuid in compute),
    )


def whole(name: str) -> ProbeTarget:
    return ProbeTarget(scope=Scope(gpu=GpuUuid(name)), uuid=name)


def part(name: str, gi: int, uuid: str, ci: int = 0) -> ProbeTarget:
    return ProbeTarget(scope=Scope(gpu=GpuUuid(name), gi=gi, ci=ci), uuid=uuid)


CUT = gpu(enabled=True, instances=[instance(1, (0, "m1")), instance(2, (0, "m2"), (1, "m3"))])


@pytest.mark.parametrize(
    ("scope", "facts", "held", "expected"),
    [
        (A, gpu(), (), [whole("A")]),
        (A, gpu(), ("other",), [whole("A")]),
        (A, gpu(), ("A",), "probe-busy"),
        (A, None, (), "probe-no-device"),
        (A, gpu(enabled=True), (), "probe-no-instance"),
        (A, gpu(enabled=True, instances=[instance(3)]), (), "probe-no-instance"),
        (A, CUT, (), [part("A", 1, "m1"), part("A", 2, "m2"), part("A", 2, "m3", 1)]),
        (A, CUT, ("m1", "m3"), [part("A", 2, "m2")]),
        (A, CUT, ("m1", "m2", "m3"), "probe-busy"),
        (replace(A, gi=1), CUT, (), [part("A", 1, "m1")]),
        (replace(A, gi=1, ci=0), CUT, (), [part("A", 1, "m1")]),
        (replace(A, gi=2), CUT, (), [part("A", 2, "m2"), part("A", 2, "m3", 1)]),
        (replace(A, gi=2, ci=1), CUT, ("m1",), [part("A", 2, "m3", 1)]),
        (replace(A, gi=1), CUT, ("m1",), "probe-busy"),
        (replace(A, gi=5), CUT, (), "probe-no-device"),
        (replace(A, gi=1), gpu(), (), "probe-no-device"),
    ],
)
def test_what_nobody_holds_can_be_probed(scope, facts, held, expected) -> None:
    found = round_of(scope, facts, held=held, now=NOW)
    if isinstance(found, NotNow):
        assert (found.name, found.scope) == (expected, scope)
        assert found.detail
    else:
        assert found == Round(scope=scope, started=NOW, targets=tuple(expected))


def test_a_round_proves_its_scope_when_all_of_it_passed() -> None:
    done = round_of(A, CUT, held=("m1",), now=NOW)
    assert isinstance(done, Round)
    good, bad = Passed(seconds=1), Unresponsive(seconds=30, ended=True)
    assert proof(done, [good, good]) == ProbePassed(scope=A, at=NOW)
    assert proof(done, [good, bad]) is None
    assert proof(done, [good]) is None


FOUR = {GpuUuid(name): gpu(name) for name in "ABCD"}


def begun(due, *, gpus=FOUR, held=(), running=(), parallel=2):
    rounds, waiting = choose(
        {Scope(gpu=GpuUuid(name)): at for name, at in due.items()},
        gpus,
        held=held,
        running=running,
        policy=Policy(parallel=parallel),
        now=NOW,
    )
    return [each.scope.gpu for each in rounds], [each.scope.gpu for each in waiting]


@pytest.mark.parametrize(
    ("due", "situation", "started", "waiting"),
    [
        ({}, {}, [], []),
        ({"A": NOW + 1}, {}, [], []),
        ({"B": 5, "A": 5, "C": 5}, {}, ["A", "B"], []),
        ({"A": 9, "B": 8, "C": -1e9}, {}, ["C", "B"], []),
        ({"A": 5, "B": 5}, {"running": ["A"]}, ["B"], []),
        ({"C": 5}, {"running": ["A", "B"]}, [], []),
        ({"A": 5, "B": 6, "C": 7}, {"held": ["A"]}, ["B", "C"], ["A"]),
        ({"A": 5, "B": 6}, {"held": ["A"], "parallel": 1, "running": ["C"]}, [], ["A"]),
        ({"A": 5, "Z": 6}, {}, ["A"], ["Z"]),
    ],
)
def test_the_longest_due_goes_first_and_what_cannot_takes_no_place(
    due, situation, started, waiting
) -> None:
    assert begun(due, **situation) == (started, waiting)


def test_two_wishes_about_one_gpu_take_turns() -> None:
    due = {replace(A, gi=2): 1.0, replace(A, gi=1): 2.0}
    policy = Policy(parallel=4)
    gpus = {GpuUuid("A"): CUT}
    (first,), _ = choose(due, gpus, held=(), running=(), policy=policy, now=NOW)
    assert first.scope.gi == 2
    assert choose(due, gpus, held=(), running={GpuUuid("A")}, policy=policy, now=NOW) == ((), ())


def test_nothing_is_routine_unless_a_period_is_set() -> None:
    uuids = [GpuUuid("A"), GpuUuid("B")]
    last = {GpuUuid("A"): 950.0}
    assert routine(uuids, last=last, policy=Policy(), since=NOW) == {}
    due = routine(uuids, last=last, policy=Policy(period=100), since=NOW)
    assert due == {A: 1050.0, Scope(gpu=GpuUuid("B")): 1100.0}
    assert next_due(due, now=NOW) == 1050.0
    assert next_due(due, now=1050.0) == 1100.0  # what is due by now waits for an event
    assert next_due({}, now=NOW) is None


scopes = st.builds(
    Scope, gpu=st.sampled_from("ABCDE"), gi=st.sampled_from([None, 1, 2, 3]), ci=st.none()
)


@given(
    due=st.dictionaries(scopes, st.floats(0, 2 * NOW), max_size=12),
    cut=st.sets(st.sampled_from("ABCD")),
    held=st.sets(st.sampled_from(["A", "B", "m1", "m2", "m3"])),
    running=st.sets(st.sampled_from("ABCD"), max_size=3),
    parallel=st.integers(1, 4),
)
def test_never_two_rounds_on_a_gpu_nor_more_than_allowed_nor_on_what_is_held(
    due, cut, held, running, parallel
) -> None:
    gpus = {
        GpuUuid(name): replace(CUT, uuid=GpuUuid(name)) if name in cut else gpu(name)
        for name in "ABCD"
    }
    rounds, waiting = choose(
        due, gpus, held=held, running=running, policy=Policy(parallel=parallel), now=NOW
    )
    busy = [*running, *(each.scope.gpu for each in rounds)]
    assert len(busy) == len(set(busy))
    assert len(rounds) <= max(0, parallel - len(running))
    told = [each.scope for each in rounds] + [each.scope for each in waiting]
    assert all(due[scope] <= NOW for scope in told)
    for ready in rounds:
        assert ready.targets
        assert not {target.uuid for target in ready.targets} & held


def test_a_policy_that_cannot_work_is_refused() -> None:
    for wrong in ({"parallel": 0}, {"period": -1}):
        with pytest.raises(ValueError, match="need parallel"):
            Policy(**wrong)
