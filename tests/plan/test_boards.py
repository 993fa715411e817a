"""That what is read back from slices holds what the plugin's own boards hold."""

from __future__ import annotations

from itertools import combinations

import pytest

from driver.core.choices import Choices
from driver.core.fragmentation import score, still_fits
from driver.core.inventory import build_inventory
from driver.core.occupancy import Live, Partition
from driver.plan.dumps import make_dump
from driver.plan.nodes import nodes
from tests.data.mig_boards import BOARDS
from tests.plan.given_cluster import slices_of
from tests.unit.core.given import DRIVER, cut, snapshot


def lists(board):
    """Profiles that may be listed: none at all, all of them, one, two."""
    names = [p.name for p in board.profiles]
    pairs = [pair for pair in combinations(names, 2) if "4g" in pair[0] or "+" in pair[1]]
    return [None, tuple(names), *((name,) for name in names), *pairs]


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_whatever_profiles_are_listed_the_board_is_the_one_that_was_published(board):
    for listed in lists(board):
        inventory = build_inventory(snapshot(cut(0, board=board)), Choices(profiles=listed))
        dump = make_dump([("", each) for each in slices_of("n", 1, listed, board)])
        (view,) = nodes(dump, DRIVER)
        assert (view.problems, len(view.boards)) == ((), 1), listed
        for live in states_of(inventory):
            assert still_fits(view.boards, live) == still_fits(inventory.boards, live), listed
            if listed is None:
                assert score(view.boards, live) == score(inventory.boards, live)


def states_of(inventory):
    """Nothing in use, and each first and last partition alone."""
    places = [d.ref for d in inventory.devices.values() if isinstance(d.ref, Partition)]
    return [Live(), *(Live(partitions=frozenset([ref])) for ref in (*places[:1], *places[-1:]))]
