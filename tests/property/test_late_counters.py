"""Sums admit exactly what some arrangement can hold: every count, without the core's help."""

from itertools import combinations, product

import pytest

from tests.data.mig_boards import A30, BOARDS, H100
from tests.unit.core.test_counters import hardware_holds
from tests.unit.core.test_late_counters import late_counters


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
