"""Nothing gets well without newer proof, whatever happens in whatever order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from hypothesis import given, settings, strategies as st

from driver.core.health.evidence import take
from driver.core.health.items import Evidence, Identity, Item, Kind
from driver.core.health.judge import JudgeSettings, Subject, judge
from driver.core.health.judgement import Judgements, State
from driver.core.health.room import MAX_OPEN, MAX_SHOWN
from driver.core.health.signals import (
    NODE,
    Acknowledged,
    CannotTell,
    Fault,
    Need,
    Overruled,
    ProbePassed,
    ResetSeen,
    Scope,
    Signal,
    Source,
    Well,
)
from driver.core.health.weight import weighs_alike
from driver.core.health.wishes import wanted_probes
from driver.core.ids import DeviceName, GpuUuid
from driver.state.evidence_file import decode, encode

GPUS = (GpuUuid("GPU-a"), GpuUuid("GPU-b"))
"""Two: too few for a suspicion of the monitor, which is another rule."""
IDENTITY = Identity(
    serials={gpu: f"s-{gpu}" for gpu in GPUS}, places={(GPUS[0], 1): 0b01, (GPUS[0], 2): 0b10}
)
SUBJECTS = (
    *(Subject(device=DeviceName(f"whole-{gpu}"), gpu=gpu) for gpu in GPUS),
    *(Subject(device=DeviceName(f"part-{n}"), gpu=GPUS[0], slots=1 << n) for n in range(2)),
)
NAMES = ("xid-79", "xid-13", "recovery-action", "gpu-lost", "x")
SCOPES = (
    NODE,
    *(Scope(gpu=gpu) for gpu in GPUS),
    *(Scope(gpu=GPUS[0], gi=gi, ci=0) for gi in (1, 2, 3)),
)
FOREVER = 1e9

scopes = st.sampled_from(SCOPES)
names = st.sampled_from(NAMES)
sources = st.sampled_from(Source)
gpus = st.sampled_from(GPUS)
at = st.just(0.0)
faults = st.builds(
    Fault,
    source=sources,
    scope=scopes,
    name=names,
    need=st.sampled_from(Need),
    at=at,
    place=st.sampled_from(("", "gpc1", "gpc2")),
    injected=st.sampled_from((False, False, True)),
    count=st.integers(1, 5),
)
unknowns = st.builds(CannotTell, source=sources, scope=scopes, name=names, at=at)
proofs = st.one_of(
    st.builds(Well, source=sources, scope=scopes, name=names, at=at),
    st.builds(Overruled, source=sources, scope=scopes, name=names, at=at),
    st.builds(ResetSeen, gpu=gpus, at=at),
    st.builds(ProbePassed, scope=scopes, at=at),
    st.builds(
        Acknowledged,
        gpu=gpus,
        name=names,
        serial=st.sampled_from(("s-GPU-a", "s-GPU-b")),
        by=st.just("ann"),
        at=at,
    ),
)
steps = st.lists(
    st.tuples(
        st.one_of(faults, unknowns, proofs),
        st.floats(0.1, 90),
        st.sampled_from((0.0, 0.0, 5.0)),
        st.sampled_from((False,) * 9 + (True,)),
    ),
    max_size=40,
)
"""What happens, the seconds since the step before, how late it is told, whether a boot came."""


def judged(evidence: Evidence, now: float) -> Judgements:
    return judge(evidence, SUBJECTS, now, JudgeSettings())


def told(evidence: Evidence, signal: Signal, now: float, boot: int) -> Evidence:
    return take(evidence, signal, boot_id=f"boot-{boot}", now=now, identity=IDENTITY)


def lived(happened: Sequence[tuple[Signal, float, float, bool]]) -> tuple[Evidence, float, int]:
    evidence, now, boot = Evidence(), 1000.0, 1
    for signal, pause, late, booted in happened:
        now += pause
        boot += booted
        evidence = told(evidence, replace(signal, at=now - late), now, boot)
    return evidence, now, boot


def shape(found: Judgements) -> Mapping[DeviceName, tuple[State, Collection[object]]]:
    """All that is acted on, without how often and when something was seen."""
    return {
        device: (
            judgement.state,
            {(r.item.key, r.state, r.step) for r in judgement.reasons if not r.item.passing},
        )
        for device, judgement in found.devices.items()
    }


def stays(item: Item) -> bool:
    return not item.passing


@settings(max_examples=150)
@given(steps)
def test_an_item_ends_by_a_proof_that_is_newer_than_its_last_sign_and_by_nothing_else(happened):
    """The proof is stated anew, without the code that decides."""
    evidence, now, boot = Evidence(), 1000.0, 1
    reset_or_boot: dict[GpuUuid, float] = {}
    booted_at = 0.0
    for signal, pause, late, booted in happened:
        now += pause
        boot += booted
        booted_at = now if booted else booted_at
        signal = replace(signal, at=now - late)  # noqa: PLW2901
        before = {k: i for k, i in evidence.items.items() if stays(i)}
        if isinstance(signal, ResetSeen):
            reset_or_boot[signal.gpu] = signal.at
        evidence = told(evidence, signal, now, boot)
        for item in (i for k, i in before.items() if k not in evidence.items):
            gone_with_boot = booted and item.need is Need.WATCH and item.kind is Kind.FAULT
            assert gone_with_boot or signal.at > item.last
            if gone_with_boot or item.kind is Kind.UNKNOWN:
                continue
            if item.need in {Need.RESET, Need.REBOOT, Need.OPERATOR}:
                assert isinstance(signal, ProbePassed)
                if item.overruled:
                    continue
                gpu = item.scope.gpu
                cures = [booted_at, item.well or 0.0, reset_or_boot.get(gpu, 0.0) if gpu else 0.0]
                cures.append(item.acknowledged.at if item.acknowledged else 0.0)
                assert item.last <= max(cures) <= now
            else:
                assert isinstance(signal, Well | ResetSeen | ProbePassed)


@settings(max_examples=150)
@given(steps, st.one_of(faults, unknowns))
def test_a_sign_of_a_fault_never_makes_a_device_better(happened, more):
    evidence, now, boot = lived(happened)
    more = replace(more, at=now)
    answered = [
        item
        for item in evidence.items.values()
        if item.kind is Kind.UNKNOWN and isinstance(more, Fault)
        if (item.source, item.scope, item.name) == (more.source, more.scope, more.name)
    ]
    if answered:
        return  # somebody looked after all: that is a proof of its kind
    after = told(evidence, more, now, boot)
    for when in (now, FOREVER):
        old, new = judged(evidence, when), judged(after, when)
        for device, judgement in old.devices.items():
            assert new.devices[device].state.rank >= judgement.state.rank


@settings(max_examples=150)
@given(steps, st.one_of(faults, unknowns, proofs), st.booleans())
def test_what_weighs_alike_is_judged_alike_and_waits_for_the_same(happened, more, twice):
    evidence, now, boot = lived(happened)
    if twice:
        evidence = told(evidence, replace(more, at=now), now, boot)
    after = told(evidence, replace(more, at=now + 1), now + 1, boot)
    if weighs_alike(evidence, after):
        for when in (now + 1, FOREVER):
            assert shape(judged(after, when)) == shape(judged(evidence, when))


@settings(max_examples=150)
@given(steps, st.floats(0, 1e6))
def test_time_alone_never_makes_a_device_better(happened, pause):
    evidence, now, _ = lived(happened)
    old, new = judged(evidence, now), judged(evidence, now + pause)
    for device, judgement in old.devices.items():
        assert new.devices[device].state.rank >= judgement.state.rank


@settings(max_examples=150)
@given(steps)
def test_between_now_and_the_due_time_nothing_changes(happened):
    evidence, now, _ = lived(happened)
    found = judged(evidence, now)
    assert found.due is None or found.due > now
    until = FOREVER if found.due is None else (now + found.due) / 2
    assert judged(evidence, until).devices == found.devices


@settings(max_examples=150)
@given(steps, steps)
def test_a_restart_changes_no_judgement_then_or_later(before, after):
    evidence, now, boot = lived(before)
    again = decode(encode(evidence, node="n"), node="n", name="f")
    assert again == replace(evidence, tries={})
    for signal, pause, late, booted in after:
        now += pause
        boot += booted
        signal = replace(signal, at=now - late)  # noqa: PLW2901
        evidence, again = told(evidence, signal, now, boot), told(again, signal, now, boot)
        assert judged(again, now) == judged(evidence, now)
        assert wanted_probes(again, now, IDENTITY) == wanted_probes(evidence, now, IDENTITY)


@settings(max_examples=150)
@given(steps, faults, faults, st.floats(-50, 0), st.floats(-50, 0))
def test_the_order_of_two_faults_that_have_nothing_to_do_with_each_other_is_the_same(
    happened, one, other, early, earlier
):
    evidence, now, boot = lived(happened)
    one = replace(one, name="one", at=now + early)
    other = replace(other, name="other", at=now + earlier)
    here = told(told(evidence, one, now, boot), other, now, boot)
    there = told(told(evidence, other, now, boot), one, now, boot)
    assert judged(here, now) == judged(there, now)
    assert judged(here, FOREVER) == judged(there, FOREVER)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.text(max_size=80), faults), min_size=1, max_size=20))
def test_any_flood_is_bounded_and_can_be_stored(flood):
    evidence, now = Evidence(), 0.0
    for wave in range(20):
        for name, signal in flood:
            now += 1
            evidence = told(evidence, replace(signal, name=f"{name}{wave}", at=now), now, 1)
    subjects = 3
    assert len(evidence.items) <= subjects * (MAX_OPEN + 2 * len(Source) + MAX_SHOWN)
    data = encode(evidence, node="n")
    assert decode(data, node="n", name="f") == evidence
    assert len(data) < 200_000
