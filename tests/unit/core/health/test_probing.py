"""What can be probed, and when it is its turn."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from driver.core.geometry import Placement
from driver.core.health.probe import Passed, ProbeTarget, Unresponsive
from driver.core.health.probing import (
    Last,
    Policy,
    after,
    choose,
    next_due,
    proves_gpu,
    targets,
)
from driver.core.health.signals import NODE, ProbePassed, Scope
from driver.core.ids import GpuUuid
from driver.core.snapshot import ComputeFacts, GpuFacts, InstanceFacts, MigState, PciAddress

POLICY = Policy(parallel=2, retry=5, retry_most=60)


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
    ("facts", "held", "possible", "not_now"),
    [
        (gpu(), (), [whole("A")], []),
        (gpu(), ("A",), [], [("A", None, "probe-busy")]),
        (gpu(), ("other",), [whole("A")], []),
        (gpu(enabled=True), (), [], [("A", None, "probe-no-instance")]),
        (
            gpu(enabled=True, instances=[instance(3)]),
            (),
            [],
            [("A", None, "probe-no-instance")],
        ),
        (CUT, (), [part("A", 1, "m1"), part("A", 2, "m2"), part("A", 2, "m3", 1)], []),
        (
            CUT,
            ("m1", "m3"),
            [part("A", 2, "m2")],
            [("A", 1, "probe-busy"), ("A", 2, "probe-busy")],
        ),
        (CUT, ("m1", "m2", "m3"), [], [("A", gi, "probe-busy") for gi in (1, 2, 2)]),
    ],
)
def test_what_nobody_holds_can_be_probed(facts, held, possible, not_now) -> None:
    found, rest = targets(facts, held=held)
    assert list(found) == possible
    assert [(each.scope.gpu, each.scope.gi, each.name) for each in rest] == not_now


def test_a_gpu_in_mig_mode_has_proved_itself_when_all_of_its_parts_have() -> None:
    assert proves_gpu(CUT, {"m1", "m2"}, at=5.0) is None
    proof = ProbePassed(scope=Scope(gpu=GpuUuid("A")), at=5.0)
    assert proves_gpu(CUT, {"m1", "m2", "m3"}, at=5.0) == proof
    assert proves_gpu(gpu(enabled=True), set(), at=5.0) is None
    assert proves_gpu(gpu(), {"A"}, at=5.0) is None  # its own probe says so itself


def starts(possible, *, wanted=None, running=(), last=None, policy=POLICY, now=1000.0):
    chosen = choose(
        possible,
        wanted=wanted or {},
        running=running,
        last=last or {},
        policy=policy,
        now=now,
    )
    return [target.uuid for target in chosen]


def test_nothing_is_probed_that_nobody_asked_for_unless_a_period_is_set() -> None:
    possible = [whole("A"), whole("B")]
    assert starts(possible) == []
    assert next_due(possible, wanted={}, last={}, policy=POLICY) is None
    daily = Policy(period=100)
    last = {"A": Last(started=950, misses=0)}
    assert starts(possible, policy=daily, last=last) == ["B"]
    assert starts(possible, policy=daily, last=last, now=1050) == ["B", "A"]
    assert next_due([whole("A")], wanted={}, last=last, policy=daily) == 1050


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (NODE, ["m1", "B"]),
        (Scope(gpu=GpuUuid("A")), ["m1"]),
        (Scope(gpu=GpuUuid("A"), gi=2), ["m2"]),
        (Scope(gpu=GpuUuid("A"), gi=2, ci=1), ["m3"]),
        (Scope(gpu=GpuUuid("B")), ["B"]),
        (Scope(gpu=GpuUuid("C")), []),
    ],
)
def test_a_wish_is_for_all_that_lies_in_its_scope_and_one_at_a_time_on_a_gpu(
    asked, expected
) -> None:
    possible = [*targets(CUT, held=())[0], whole("B")]
    assert sorted(starts(possible, wanted={asked: 0.0})) == sorted(expected)


def test_running_probes_take_their_gpu_and_their_place() -> None:
    possible = [whole(name) for name in "ABCD"]
    wish = {NODE: 0.0}
    assert starts(possible, wanted=wish) == ["A", "B"]
    assert starts(possible, wanted=wish, running=[whole("A")]) == ["B"]
    assert starts(possible, wanted=wish, running=[whole("A"), whole("B")]) == []


def test_what_is_asked_for_goes_before_routine_and_the_longest_wait_first() -> None:
    policy = Policy(parallel=1, period=10)
    possible = [whole("A"), whole("B"), whole("C")]
    last = {
        "A": Last(started=100, misses=0),
        "B": Last(started=500, misses=0),
        "C": Last(started=400, misses=0),
    }
    wish = {Scope(gpu=GpuUuid("B")): 600.0, Scope(gpu=GpuUuid("C")): 600.0}
    assert starts(possible, wanted=wish, last=last, policy=policy) == ["C"]
    assert starts(possible, last=last, policy=policy) == ["A"]


def test_a_pass_fulfils_the_wishes_from_before_it_started() -> None:
    possible, wish = [whole("A")], {Scope(gpu=GpuUuid("A")): 900.0}
    last = after(None, Passed(seconds=1), started=899.0)
    assert starts(possible, wanted=wish, last={"A": last}) == ["A"]
    last = after(last, Passed(seconds=1), started=900.0)
    assert starts(possible, wanted=wish, last={"A": last}) == []
    assert next_due(possible, wanted=wish, last={"A": last}, policy=POLICY) is None


def test_what_does_not_pass_is_tried_again_ever_later_but_a_new_wish_is_served_soon() -> None:
    possible, wish = [whole("A")], {Scope(gpu=GpuUuid("A")): 0.0}
    now, last, pauses = 0.0, None, []
    for _ in range(6):
        last = after(last, Unresponsive(seconds=1, ended=True), started=now)
        due = next_due(possible, wanted=wish, last={"A": last}, policy=POLICY)
        assert due is not None
        assert starts(possible, wanted=wish, last={"A": last}, now=due - 0.1) == []
        assert starts(possible, wanted=wish, last={"A": last}, now=due) == ["A"]
        pauses.append(due - now)
        now = due
    assert pauses == [5, 10, 20, 40, 60, 60]
    assert last is not None
    newer = {Scope(gpu=GpuUuid("A")): now + 1}
    assert (
        next_due(possible, wanted=newer, last={"A": last}, policy=POLICY) == last.started + 60 + 1
    )
    storm = {Scope(gpu=GpuUuid("A")): last.started + 1}
    assert next_due(possible, wanted=storm, last={"A": last}, policy=POLICY) == last.started + 5


names = st.sampled_from("ABCD")
all_targets = st.one_of(
    names.map(whole),
    st.tuples(names, st.integers(0, 3)).map(lambda t: part(t[0], t[1], f"{t[0]}{t[1]}")),
)
lasts = st.builds(Last, started=st.floats(0, 1000), misses=st.integers(0, 50))


@given(
    possible=st.lists(all_targets, unique_by=lambda target: target.uuid),
    running=st.lists(all_targets, unique_by=lambda target: target.scope.gpu, max_size=3),
    last=st.dictionaries(st.sampled_from(["A", "B", "A0", "B1", "C2"]), lasts),
    period=st.sampled_from([0.0, 30.0]),
    parallel=st.integers(1, 4),
)
def test_never_two_on_a_gpu_nor_more_than_allowed_on_the_node(
    possible, running, last, period, parallel
) -> None:
    policy = Policy(parallel=parallel, period=period)
    chosen = choose(
        possible, wanted={NODE: 0.0}, running=running, last=last, policy=policy, now=2000.0
    )
    gpus = [target.scope.gpu for target in (*chosen, *running)]
    assert len(gpus) == len(set(gpus))
    assert len(chosen) <= max(0, parallel - len(running))
    assert set(chosen) <= set(possible)


def test_a_policy_that_cannot_work_is_refused() -> None:
    for wrong in ({"parallel": 0}, {"period": -1}, {"retry": 0}, {"retry": 9, "retry_most": 8}):
        with pytest.raises(ValueError, match="need parallel"):
            Policy(**wrong)
