"""For which profiles the start may be chosen late, and how all others would break."""

from itertools import combinations

import pytest

from driver.core.geometry import offers
from driver.core.late_binding import TooLarge, Unsafe, check, choose_start
from tests.data.mig_boards import H100, RTX_PRO_6000, every_profile


def offer_of(board, *listed):
    return offers([board], listed)[0]


def test_the_shortest_witness_is_two_3g_of_which_the_right_one_ends():
    verdict = check(offer_of(H100, "3g.40gb", "4g.40gb"))
    assert verdict == Unsafe(
        witness=(
            "allocate 3g.40gb at 4",
            "allocate 3g.40gb at 0",
            "end 3g.40gb at 4",
            "allocate 4g.40gb: admitted, but no start is free",
        )
    )


@pytest.mark.parametrize("listed", [*combinations(["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb"], 2)])
def test_every_witness_can_be_played_and_ends_without_room(listed):
    offer = offer_of(H100, *listed)
    verdict = check(offer)
    assert isinstance(verdict, Unsafe)
    running: set[tuple[str, int]] = set()
    mask = 0
    for step in verdict.witness[:-1]:
        verb, name, _, start = step.split()
        slots = H100.profile(name).mask(int(start))
        assert bool(slots & mask) == (verb == "end"), step
        (running.add if verb == "allocate" else running.remove)((name, int(start)))
        mask ^= slots
    last = H100.profile(verdict.witness[-1].split()[1].rstrip(":"))
    assert all(p.mask & mask for p in last.placements)
    sizes = sum(H100.profile(n).size for n, _ in running) + last.size
    assert sizes <= 8, "the sum of the slots would have admitted it"


def test_a_start_is_chosen_where_it_costs_least_among_the_safe_ones():
    small = offer_of(H100, "1g.10gb", "7g.80gb")
    assert choose_start(small, [], "1g.10gb") == 6
    assert choose_start(small, [("1g.10gb", 6)], "1g.10gb") == 4
    assert choose_start(small, [("1g.10gb", 6)], "7g.80gb") is None
    pair = offer_of(H100, "2g.20gb", "1g.10gb+me")
    assert choose_start(pair, [], "1g.10gb+me") == 6


@pytest.mark.parametrize("listed", [("1g.10gb",), ("2g.20gb", "1g.10gb+me", "7g.80gb")])
def test_a_safe_set_is_filled_to_the_last_claim_after_any_ends(listed):
    """Fill the GPU, end any one, and its place is found again."""
    offer = offer_of(H100, *listed)
    running: list[tuple[str, int]] = []
    while (start := choose_start(offer, running, listed[0])) is not None:
        running.append((listed[0], start))
    assert len(running) == H100.profile(listed[0]).max_instances
    for ended in running:
        left = [r for r in running if r != ended]
        assert choose_start(offer, left, listed[0]) == ended[1]


def test_a_set_with_too_many_layouts_is_not_called_safe(monkeypatch):
    monkeypatch.setattr("driver.core.late_binding.MOST_LAYOUTS", 100)
    verdict = check(offer_of(RTX_PRO_6000, *every_profile(RTX_PRO_6000)))
    assert isinstance(verdict, TooLarge)
    assert "more than 100 layouts" in verdict.reason
