"""Sums admit exactly what some arrangement can hold: every count, without the core's help."""

from dataclasses import replace
from itertools import combinations, product

import pytest

from driver.core.counters import Inexpressible
from driver.core.geometry import Geometry, Placement, bound, offers
from driver.core.late_counters import LateCounters, find_late_counters
from tests.data.mig_boards import A30, A100_80, BOARDS, H100, RTX_PRO_6000
from tests.unit.core.test_counters import hardware_holds


def found(board, listed):
    return find_late_counters(bound(offers([board], listed)[0], late=True))


def late_counters(board, listed):
    counters = found(board, listed)
    assert isinstance(counters, LateCounters), counters
    return counters


def holds(board, counts, left=None, mask=0, chosen=()):
    """Whether these partitions lie somewhere on an empty GPU, by plain recursion."""
    left = [n for n, count in counts.items() for _ in range(count)] if left is None else left
    if not left:
        return hardware_holds(board, chosen)
    profile = board.profile(left[0])
    return any(
        holds(board, counts, left[1:], mask | p.mask, (*chosen, (profile, p.start)))
        for p in profile.placements
        if not p.mask & mask
    )


def admits(board, counters, counts):
    left = dict(counters.counter_set("gpu").counters)
    for name, count in counts.items():
        for counter, amount in counters.partition("gpu", board.profile(name)).counters:
            left[counter] -= count * amount
    return min(left.values()) >= 0


def check_all(board, listed):
    counters = late_counters(board, listed)
    for numbers in product(*(range(counters.most[n] + 1) for n in listed)):
        counts = dict(zip(listed, numbers, strict=True))
        assert admits(board, counters, counts) == holds(board, counts), counts
    for name in listed:
        alone = {name: counters.most[name]}
        assert holds(board, alone)
        assert not holds(board, {name: counters.most[name] + 1})


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_sums_admit_exactly_the_counts_that_some_arrangement_holds(board):
    for count in (1, 2):
        for listed in combinations([p.name for p in board.profiles], count):
            check_all(board, listed)


@pytest.mark.parametrize("partial", ["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb"])
def test_the_largest_sets_that_are_safe_are_told_exactly(partial):
    check_all(H100, [partial, "1g.10gb+me", "7g.80gb"])


def test_five_profiles_of_a_small_board_are_told_exactly():
    check_all(A30, [p.name for p in A30.profiles])


@pytest.mark.parametrize(
    ("board", "listed", "sums", "most"),
    [
        (H100, ["1g.10gb"], {"memory-slices": 8}, {"1g.10gb": 7}),
        (
            H100,
            ["1g.10gb", "1g.10gb+me", "7g.80gb"],
            {"memory-slices": 8, "compute-slices": 7},
            {"1g.10gb": 7, "1g.10gb+me": 1, "7g.80gb": 1},
        ),
        (A100_80, ["2g.20gb"], {"memory-slices": 8}, {"2g.20gb": 3}),
        (
            A30,
            ["1g.6gb+me", "2g.12gb+me"],
            {"memory-slices": 4, "jpeg-engines": 1},
            {"1g.6gb+me": 1, "2g.12gb+me": 1},
        ),
        (RTX_PRO_6000, ["1g.24gb"], {"memory-slices": 12}, {"1g.24gb": 4}),
    ],
    ids=["1g", "1g, +me and 7g", "2g", "media", "thirds"],
)
def test_a_sum_beside_the_slots_is_there_only_where_they_admit_too_much(board, listed, sums, most):
    counters = late_counters(board, listed)
    assert dict(counters.counter_set("gpu").counters) == sums
    assert dict(counters.most) == most


def test_the_full_gpu_takes_every_slot():
    counters = late_counters(H100, ["1g.10gb"])
    assert counters.whole("gpu").counters == (("memory-slices", 8),)


def test_starts_that_waste_slots_cannot_be_told_by_sums():
    """Two of a pair that could only lie on the same middle slots; the sum has room for both."""
    one = replace(H100.profile("3g.40gb"), placements=(Placement(start=2, size=4),))
    other = replace(H100.profile("2g.20gb"), placements=(Placement(start=4, size=2),))
    verdict = found(Geometry(slots=8, profiles=(one, other)), ["3g.40gb", "2g.20gb"])
    assert isinstance(verdict, Inexpressible)
    assert "1 x 2g.20gb, 1 x 3g.40gb together do not fit" in verdict.reason
    assert "set binding to scheduler" in verdict.reason
