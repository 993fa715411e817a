"""Counters admit exactly what the hardware can hold: every set, without the core's help."""

from dataclasses import replace
from itertools import combinations
from time import process_time

import pytest

from driver.core.counters import Counters, Inexpressible, find_counters
from driver.core.geometry import Geometry, Placement, offers
from tests.data.mig_boards import (
    A30,
    A100_80,
    BOARDS,
    EIGHT_SLOTS,
    H100,
    RTX_PRO_6000,
    every_profile,
)

# What each board has, by its largest profile; base profiles share it out without remainder.
ENGINES = ("copy_engines", "decoders", "encoders", "jpeg", "ofa")


def counters_of(board, listed=None):
    found = find_counters(offers([board], listed)[0])
    assert isinstance(found, Counters), found
    return found


def limits(board, listed=None):
    return {x.name: x.total for x in counters_of(board, listed).limits}


def instances(board, listed):
    return [(board.profile(n), s) for n in listed for s in board.profile(n).starts]


def sets_without_overlap(left, chosen=(), mask=0):
    """Every set, by plain recursion."""
    yield chosen
    for i, (profile, start) in enumerate(left):
        if not profile.mask(start) & mask:
            yield from sets_without_overlap(
                left[i + 1 :], (*chosen, (profile, start)), mask | profile.mask(start)
            )


def hardware_holds(board, chosen):
    largest = max(board.profiles, key=lambda p: (p.size, not p.is_variant))
    profiles = [p for p, _ in chosen]
    return (
        sum(p.compute_slices for p in profiles) <= largest.compute_slices
        and all(profiles.count(p) <= p.max_instances for p in profiles)
        and all(sum(getattr(p, e) for p in profiles) <= getattr(largest, e) for e in ENGINES)
    )


def admission(counters, parts):
    """Whether the scheduler admits a set of `parts`, by its counters alone."""
    total = dict(counters.counter_set("gpu").counters)
    takes = {(p.name, s): counters.partition("gpu", p, s).counters for p, s in parts}

    def admitted(chosen):
        left = dict(total)
        for profile, start in chosen:
            for name, amount in takes[profile.name, start]:
                left[name] -= amount
        return min(left.values()) >= 0

    return admitted


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
@pytest.mark.parametrize("every", [False, True], ids=["default", "every profile"])
def test_counters_admit_exactly_the_sets_that_the_hardware_holds(board, every):
    listed = every_profile(board) if every else None
    parts = instances(board, listed or [p.name for p in offers([board])[0].profiles])
    admitted = admission(counters_of(board, listed), parts)
    seen = {True: 0, False: 0}
    for chosen in sets_without_overlap(parts):
        holds = hardware_holds(board, chosen)
        assert admitted(chosen) == holds, chosen
        seen[holds] += 1
    assert seen[True] > 10


@pytest.mark.parametrize("board", EIGHT_SLOTS.values(), ids=EIGHT_SLOTS)
def test_two_partitions_that_overlap_are_never_admitted_together(board):
    parts = instances(board, every_profile(board))
    admitted = admission(counters_of(board, every_profile(board)), parts)
    for (p, s), (q, t) in combinations(parts, 2):
        if p.mask(s) & q.mask(t):
            assert not admitted([(p, s), (q, t)])


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_memory_slices_suffice_for_the_default_profiles(board):
    assert limits(board) == {}
    names = [n for n, _ in counters_of(board).counter_set("gpu").counters]
    assert sorted(names) == sorted(f"memory-slice-{i}" for i in range(board.slots))


@pytest.mark.parametrize(
    ("board", "extra"),
    [
        (A100_80, {"jpeg-engines": 1}),
        (H100, {"ofa-engines": 1}),
        (A30, {"jpeg-engines": 1}),
        (RTX_PRO_6000, {"decoders": 4, "ofa-engines": 1}),
    ],
    ids=["A100", "H100", "A30", "RTX"],
)
def test_media_variants_cost_one_counter_for_each_engine_that_runs_out(board, extra):
    assert limits(board, every_profile(board)) == extra


def test_an_instance_count_is_a_counter_where_no_engine_says_it():
    plain = tuple(replace(p, ofa=0, jpeg=0) if p.name.endswith("+me") else p for p in H100.profiles)
    board = Geometry(slots=8, profiles=plain)
    assert limits(board, every_profile(board)) == {"instances-1g10gb-me": 1}


def test_a_compute_counter_is_added_where_slots_alone_admit_too_much():
    wide = replace(H100.profile("3g.40gb"), name="4g.41gb", compute_slices=4, max_instances=1)
    board = Geometry(slots=8, profiles=(*H100.profiles, wide))
    assert "compute-slices" in limits(board, ["4g.41gb", "4g.40gb"])


def test_more_decoders_in_print_than_the_whole_board_has_refuse_no_base_profile():
    """One print of a 1g has a decoder, seven of which would exceed the five of the 7g."""
    one = replace(A100_80.profile("1g.10gb"), decoders=1)
    board = Geometry(slots=8, profiles=(one, *A100_80.profiles[1:]))
    assert limits(board) == {}


def test_the_full_gpu_excludes_every_partition():
    counters = counters_of(H100, every_profile(H100))
    whole = dict(counters.whole("gpu").counters)
    for profile, start in instances(H100, every_profile(H100)):
        assert whole.keys() & dict(counters.partition("gpu", profile, start).counters).keys()


@pytest.mark.parametrize(
    ("board", "reason"),
    [
        (
            Geometry(
                slots=8,
                profiles=(replace(H100.profiles[0], placements=(Placement(start=7, size=2),)),),
            ),
            "placed at slot 7 with size 2, outside of the board's 8 slots",
        ),
        (
            Geometry(
                slots=8,
                profiles=(replace(H100.profiles[0], placements=(Placement(start=0, size=1),) * 2),),
            ),
            "reported twice at one start",
        ),
        (
            Geometry(
                slots=33,
                profiles=(replace(H100.profiles[0], placements=(Placement(start=0, size=33),)),),
            ),
            "more than 32 counters",
        ),
    ],
    ids=["outside", "twice", "too wide"],
)
def test_what_no_counters_can_say_is_refused_with_the_reason(board, reason):
    found = find_counters(offers([board], [p.name for p in board.profiles])[0])
    assert isinstance(found, Inexpressible)
    assert reason in found.reason


def test_the_check_is_fast_enough_for_every_start():
    offer = offers([H100], every_profile(H100))[0]

    def once():
        before = process_time()
        find_counters.__wrapped__(offer)
        return process_time() - before

    assert min(once() for _ in range(5)) < 0.1
