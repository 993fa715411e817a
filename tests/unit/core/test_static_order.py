"""S*: computed for each geometry, equal to the published optimum where that is known."""

import pytest

from driver.core.geometry import Geometry
from driver.core.static_order import static_order, static_ranks
from tests.data.mig_boards import A30, BOARDS, EIGHT_SLOTS, RTX_PRO_6000

PUBLISHED = {
    # NVML index: starts, best first (optimum of all 90,720 classes of static orders)
    0: (6, 4, 5, 0, 1, 2, 3),
    7: (6, 4, 5, 0, 1, 2, 3),
    9: (6, 4, 2, 0),
    1: (4, 2, 0),
    2: (4, 0),
    3: (0,),
    4: (0,),
}


@pytest.mark.parametrize("board", EIGHT_SLOTS.values(), ids=EIGHT_SLOTS)
def test_on_eight_slots_it_is_the_published_order(board):
    assert dict(static_order(board)) == {p.name: PUBLISHED[p.index] for p in board.profiles}


def test_on_four_slots_small_and_large_come_from_opposite_ends():
    assert dict(static_order(A30)) == {
        "1g.6gb": (0, 1, 2, 3),
        "1g.6gb+me": (0, 1, 2, 3),
        "2g.12gb": (2, 0),
        "2g.12gb+me": (2, 0),
        "4g.24gb": (0,),
    }


def test_on_twelve_units_it_steps_by_thirds():
    order = static_order(RTX_PRO_6000)
    for profile in RTX_PRO_6000.profiles:
        expected = {3: (0, 3, 6, 9), 6: (6, 0), 12: (0,)}[profile.size]
        assert order[profile.name] == expected


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_every_start_has_one_rank(board):
    ranks = static_ranks(board)
    for profile in board.profiles:
        assert sorted(ranks[profile.name, s] for s in profile.starts) == list(
            range(len(profile.starts))
        )


def test_it_is_the_same_whatever_is_published():
    """Variants beside the base profiles do not move them."""
    for board in BOARDS.values():
        base = static_order(Geometry(slots=board.slots, profiles=board.base))
        whole = static_order(board)
        assert {name: whole[name] for name in base} == dict(base)
