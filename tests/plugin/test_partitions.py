"""Making and unmaking partitions while every call that can fail does fail, one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from driver.core.errors import (
    ClaimError,
    DriverMismatch,
    DriverNotLoaded,
    GpuLost,
    InUse,
    LibraryMissing,
    NotFound,
    NvmlError,
)
from driver.core.geometry import Placement
from driver.core.ids import CdiId, ClaimUID, DeviceName, GpuUuid, PoolName
from driver.core.ledger import Entry, Holding, Made, Phase, Slot
from driver.core.prepare import FindPartition, MakePartition, OpenPartition, Step, SwitchMode
from driver.core.snapshot import ComputeFacts, InstanceFacts
from driver.plugin.preparing.partitions import Partitions, Unfinished
from tests.data.mig_boards import H100
from tests.plugin.mig import MemoryMig, error

A, B = GpuUuid("GPU-a"), GpuUuid("GPU-b")
FAILED = error(NvmlError, "injected", 999)


def make(gpu: GpuUuid, profile: str, start: int) -> MakePartition:
    found = H100.profile(profile)
    return MakePartition(
        gpu=gpu,
        device=DeviceName(f"{gpu}-{profile}-{start}"),
        profile=found,
        placement=next(p for p in found.placements if p.start == start),
    )


ONE = make(A, "1g.10gb", 0)
PARTS = (ONE, make(A, "3g.40gb", 4), make(B, "2g.20gb", 0))
STEPS: tuple[Step, ...] = (SwitchMode(gpu=A, on=True), SwitchMode(gpu=B, on=True), *PARTS)


def entry(made: dict[DeviceName, Made] | None = None, parts: tuple[MakePartition, ...] = PARTS):
    """What the ledger holds: before (None) or after the parts were made."""
    return Entry(
        uid=ClaimUID("uid-a"),
        namespace="default",
        name="a",
        boot_id="boot-1",
        phase=Phase.STARTED if made is None else Phase.COMPLETED,
        holdings=tuple(
            Holding(
                request="r",
                pool=PoolName("p"),
                device=part.device,
                gpu=part.gpu,
                cdi_id=CdiId(part.device),
                slot=Slot(
                    profile=part.profile.name,
                    start=part.placement.start,
                    size=part.placement.size,
                    ours=True,
                    made=made[part.device] if made else None,
                ),
            )
            for part in parts
        ),
    )


class Time:
    """A clock that only waiting moves."""

    def __init__(self, *, ending: bool = False) -> None:
        self.now, self.ending = 0.0, ending

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return self.ending


def over(mig: MemoryMig, time: Time | None = None) -> Partitions:
    time = time or Time()
    return Partitions(mig, wait=time.wait, clock=lambda: time.now)


def release(mig: MemoryMig, held: Entry) -> None:
    over(mig).release(held, switchable=lambda _: True)


def places(mig: MemoryMig) -> set[tuple[GpuUuid, int, int]]:
    """What is on the hardware: GPU, slots, how many compute instances."""
    return {(gpu, i.placement.mask, len(i.compute)) for gpu, held in mig.held.items() for i in held}


COMPLETE = {(p.gpu, p.placement.mask, 1) for p in PARTS}


def numbered(calls: list[str]) -> list[tuple[str, int]]:
    """Each call as `fail` names it."""
    seen = Counter[str]()
    found = []
    for name in calls:
        seen[name] += 1
        found.append((name, seen[name]))
    return found


def made_calls() -> list[tuple[str, int]]:
    mig = MemoryMig()
    over(mig).realise(STEPS, adopt=False)
    return numbered(mig.calls)


def undoing_calls() -> Iterator[tuple[tuple[str, int], tuple[str, int]]]:
    """Each call that can fail, with each call that undoes what went before it."""
    for first in made_calls():
        mig = MemoryMig(fail={first: FAILED})
        with pytest.raises(NvmlError):
            over(mig).realise(STEPS, adopt=False)
        calls = numbered(mig.calls)
        for later in calls[calls.index(first) + 1 :]:
            yield first, later


@pytest.mark.parametrize("call", made_calls(), ids=str)
def test_whatever_call_fails_nothing_is_left_and_the_next_attempt_succeeds(call) -> None:
    mig = MemoryMig(fail={call: FAILED})
    with pytest.raises(NvmlError) as raised:
        over(mig).realise(STEPS, adopt=False)
    assert raised.value is FAILED
    assert places(mig) == set()
    assert not mig.on
    over(mig).check(STEPS)
    assert over(mig).realise(STEPS, adopt=False).keys() == {p.device for p in PARTS}
    assert places(mig) == COMPLETE


def test_where_undoing_fails_too_the_rest_is_told_and_adopted_or_destroyed_later() -> None:
    """Every pair of a failing call and a failing call of its undoing."""
    unfinished = 0
    for first, later in undoing_calls():
        for healed_by in ("retry", "release"):
            mig = MemoryMig(fail={first: FAILED, later: error(NvmlError, "undo", 999)})
            with pytest.raises((NvmlError, Unfinished)) as raised:
                over(mig).realise(STEPS, adopt=False)
            if not isinstance(raised.value, Unfinished):
                assert places(mig) == set(), (first, later)
                continue
            unfinished += 1
            assert places(mig) != set(), (first, later)
            if healed_by == "retry":
                over(mig).realise(STEPS, adopt=True)
                assert places(mig) == COMPLETE, (first, later)
            else:
                release(mig, entry())
                assert places(mig) == set(), (first, later)
                assert not mig.on
    assert unfinished > 10


@pytest.mark.parametrize("made_so_far", range(len(made_calls())), ids=str)
def test_after_a_crash_between_any_two_calls_a_retry_completes_and_an_end_leaves_nothing(
    made_so_far: int,
) -> None:
    class Crash(BaseException):
        """The process is gone: nothing is undone."""

    def crashed() -> MemoryMig:
        mig = MemoryMig(fail={made_calls()[made_so_far]: Crash()})  # type: ignore[dict-item]
        with pytest.raises(Crash):
            over(mig).realise(STEPS, adopt=False)
        return mig

    retried = crashed()
    over(retried).realise(STEPS, adopt=True)
    assert places(retried) == COMPLETE
    ended = crashed()
    release(ended, entry())
    assert places(ended) == set()


def test_an_adoption_that_fails_before_its_rest_is_cleared_says_that_it_is_still_there() -> None:
    mig = MemoryMig(on={A})
    mig.create(A, ONE.profile, ONE.placement)
    mig.fail = {("destroy", 1): error(GpuLost, "destroy", 15)}
    with pytest.raises(Unfinished, match=r"GPU-a-1g\.10gb-0") as raised:
        over(mig).realise((ONE,), adopt=True)
    assert isinstance(raised.value.__cause__, GpuLost)


def released_calls() -> list[tuple[str, int]]:
    mig = MemoryMig()
    made = over(mig).realise(STEPS, adopt=False)
    mig.calls.clear()
    release(mig, entry(made))
    return numbered(mig.calls)


@pytest.mark.parametrize("call", released_calls(), ids=str)
def test_a_release_that_failed_anywhere_is_completed_by_the_next_one(call) -> None:
    mig = MemoryMig()
    made = over(mig).realise(STEPS, adopt=False)
    foreign = mig.create(B, H100.profile("1g.10gb"), H100.profile("1g.10gb").placements[-1])
    mig.calls.clear()
    mig.fail = {call: FAILED}
    try:
        release(mig, entry(made))
    except NvmlError:
        release(mig, entry(made))
    assert [i.id for held in mig.held.values() for i in held] == [foreign]
    assert B in mig.on


def test_mig_mode_goes_off_with_the_last_partition_and_not_before() -> None:
    mig = MemoryMig()
    first, last = (over(mig).realise((*STEPS[:1], p), adopt=False) for p in PARTS[:2])
    release(mig, entry(first, PARTS[:1]))
    assert mig.on == {A}
    release(mig, entry(last, PARTS[1:2]))
    assert mig.on == set()


def test_where_a_reset_would_be_needed_mig_mode_stays() -> None:
    mig = MemoryMig(on={A})
    made = over(mig).realise((ONE,), adopt=False)
    over(mig).release(entry(made, (ONE,)), switchable=lambda _: False)
    assert mig.on == {A}
    assert "set_mode" not in mig.calls


def made_one() -> tuple[MemoryMig, Entry]:
    mig = MemoryMig()
    return mig, entry(over(mig).realise((STEPS[0], ONE), adopt=False), (ONE,))


def test_a_uuid_that_went_to_another_place_is_another_partition() -> None:
    """After a reset the ids begin anew, and a UUID is a function of them."""
    mig, held = made_one()
    assert over(mig).gone(held) == ()
    (there,) = mig.held[A]
    mig.held[A] = [replace(there, placement=Placement(start=5, size=1))]
    assert over(mig).gone(held) == (ONE.device,)


def test_of_a_gpu_that_is_lost_no_partition_is_called_gone() -> None:
    mig, held = made_one()
    mig.fail = {("instances", mig.calls.count("instances") + 1): error(GpuLost, "instances", 15)}
    assert over(mig).gone(held) == ()


def test_a_partition_in_use_is_waited_for() -> None:
    mig, held = made_one()
    time = Time()
    mig.busy = {1}
    over(mig, time).release(held, switchable=lambda _: True)
    assert places(mig) == set()
    assert time.now == 0.25


@pytest.mark.parametrize(("ending", "waited"), [(False, 10.0), (True, 0.25)])
def test_but_not_for_ever_and_not_while_the_process_ends(ending: bool, waited: float) -> None:
    mig, held = made_one()
    time = Time(ending=ending)
    mig.fail = {("destroy_compute", n): error(InUse, "destroy_compute", 19) for n in range(1, 99)}
    with pytest.raises(InUse):
        over(mig, time).release(held, switchable=lambda _: True)
    assert time.now == waited
    assert len(mig.held[A]) == 1


def test_another_instance_at_the_place_is_left_alone() -> None:
    mig, held = made_one()
    mig.held[A] = [replace(mig.held[A][0], compute=(ComputeFacts(id=0, uuid="MIG-other"),))]
    release(mig, held)
    assert [i.compute[0].uuid for i in mig.held[A]] == ["MIG-other"]
    assert mig.on == {A}


@pytest.mark.parametrize("kind", [GpuLost, NotFound, DriverNotLoaded])
def test_partitions_of_a_gpu_that_is_gone_are_gone(kind: type[NvmlError]) -> None:
    mig, held = made_one()
    mig.fail = {("instances", mig.calls.count("instances") + 1): error(kind, "instances", 1)}
    release(mig, held)


@pytest.mark.parametrize("kind", [DriverMismatch, LibraryMissing])
def test_partitions_that_only_cannot_be_reached_are_not_forgotten(kind: type[NvmlError]) -> None:
    mig, held = made_one()
    mig.fail = {("instances", mig.calls.count("instances") + 1): error(kind, "instances", 1)}
    with pytest.raises(kind):
        release(mig, held)


@pytest.mark.parametrize("there", [("1g.10gb", 0), ("1g.10gb+me", 0), ("7g.80gb", 0)], ids=str)
def test_somebody_elses_instance_is_named_before_anything_is_written_down(there) -> None:
    mig = MemoryMig(on={A})
    part = make(A, *there)
    mig.create(A, part.profile, part.placement)
    with pytest.raises(ClaimError, match=r"GPU instance 1 that Tessera did not make.*-dgi -gi 1"):
        over(mig).check((make(A, "1g.10gb", 1) if there[0] == "7g.80gb" else ONE,))
    over(mig).check((make(B, "1g.10gb", 0),))


def test_a_gpu_that_waits_for_a_reset_is_not_switched() -> None:
    mig = MemoryMig(waiting={A})
    with pytest.raises(ClaimError, match="GPU-a waits for a reset"):
        over(mig).realise(STEPS[:1], adopt=False)


def test_a_gpu_is_not_made_whole_over_partitions() -> None:
    mig, _ = made_one()
    with pytest.raises(ClaimError, match="GPU-a still has 1 partitions"):
        over(mig).realise((SwitchMode(gpu=A, on=False),), adopt=False)
    assert mig.on == {A}
    assert over(MemoryMig(on={A})).realise((SwitchMode(gpu=A, on=False),), adopt=False) == {}


EXISTING = InstanceFacts(
    id=3, profile_id=19, placement=ONE.placement, compute=(ComputeFacts(id=0, uuid="MIG-3"),)
)
EXPECTED = Made(instance=3, compute=0, uuid="MIG-3")


def test_an_administrators_partition_is_used_while_it_is_the_same() -> None:
    mig = MemoryMig(on={A}, held={A: [EXISTING]})
    step = FindPartition(gpu=A, device=ONE.device, expected=EXPECTED, placement=EXISTING.placement)
    assert over(mig).realise((step,), adopt=False) == {ONE.device: EXPECTED}
    elsewhere = Placement(start=ONE.placement.start + 1, size=ONE.placement.size)
    for other in (
        replace(EXISTING, compute=(ComputeFacts(id=0, uuid="MIG-4"),)),
        replace(EXISTING, placement=elsewhere),
    ):
        mig.held[A] = [other]
        with pytest.raises(ClaimError, match=r"\(MIG-3\) is not on GPU GPU-a any more"):
            over(mig).realise((step,), adopt=False)


def test_admin_access_opens_what_is_there_and_makes_nothing() -> None:
    mig = MemoryMig(on={A}, held={A: [EXISTING]})
    step = OpenPartition(gpu=A, device=ONE.device, profile=ONE.profile, placement=ONE.placement)
    assert over(mig).realise((step,), adopt=False) == {ONE.device: EXPECTED}
    mig.held[A] = []
    with pytest.raises(ClaimError, match="admin access opens a partition that another claim uses"):
        over(mig).realise((step,), adopt=False)
    assert set(mig.calls) == {"instances"}
