"""When a published order is replaced: a state that came about, and the slices that follow."""

import pytest

from driver.core.layout import lay_out
from driver.core.occupancy import NOTHING
from driver.core.packing import Policy, make_order
from driver.core.rerank import rerank
from tests.unit.core.given_mig import all_of, live, node, spell

PACKED = Policy.PACKED


def published(boards, state=NOTHING, policy=PACKED):
    return lay_out(boards, make_order(boards, state, policy))


def stale(boards, then, now, **more):
    """The slices that are written when `then` was published and `now` is true."""
    return rerank(published(boards, then), boards, now, PACKED, **more)


def test_an_order_whose_first_choices_still_hold_is_left_alone():
    assert stale(node(4), NOTHING, NOTHING) == ()
    state = live("0:1g.10gb@6")
    assert stale(node(4), state, state) == ()


def test_a_slice_is_replaced_when_it_would_open_an_idle_gpu_although_a_used_one_fits():
    boards, now = node(4), live("2:1g.10gb@6")
    replaced = {p.what: p for p in stale(boards, NOTHING, now)}
    assert set(replaced) == {"small", "large", "double"}
    assert spell(replaced["small"].devices[:2]) == ["2@4", "2@5"]
    assert set(stale(boards, NOTHING, now)) <= set(published(boards, now))


def test_only_the_slices_with_another_first_choice_are_written():
    """The first 1g went to 6, as listed; one at 4 makes the next one join it at 5, not 6."""
    assert stale(node(4), NOTHING, live("0:1g.10gb@6")) == ()
    (small,) = stale(node(4), NOTHING, live("0:1g.10gb@4"))
    assert (small.what, spell(small.devices[:1])) == ("small", ["0@5"])


def test_the_end_of_a_claim_counts_as_much_as_its_beginning():
    full = live("0:4g.40gb@0", "0:3g.40gb@4")
    written = stale(node(2), full, live("0:4g.40gb@0"))
    assert {p.what: spell(p.devices[:1]) for p in written} == {
        "small": ["0@6"],
        "large": ["0@4"],
        "double": ["0@6"],
    }


def test_a_kind_of_which_nothing_is_free_makes_no_write():
    full = live("0", "1")
    assert stale(node(2), full, full) == ()
    assert stale(node(2), NOTHING, full) == ()


def test_a_whole_gpu_that_is_taken_from_the_front_is_the_order_that_stands():
    assert stale(node(4), NOTHING, live("3")) == ()


def test_up_to_three_events_behind_the_state_is_followed_and_beyond_it_is_not():
    boards, then, now = node(4), live("2:1g.10gb@6"), live("3:1g.10gb@6")
    followed = {p.what: spell(p.devices[:1]) for p in stale(boards, then, now, behind=3)}
    assert followed["small"] == ["3@4"]
    assert {p.what: p for p in stale(boards, then, now, behind=4)} == {
        p.what: p for p in published(boards) if p.devices
    }


def test_a_static_order_that_stands_is_not_written_again():
    assert stale(node(4), NOTHING, live("2:1g.10gb@6"), behind=100) == ()


def test_a_node_without_a_device_is_never_written_again():
    assert rerank(published(()), (), NOTHING, PACKED) == ()


def test_a_second_rerank_has_nothing_to_do():
    boards, now = node(16), live("2:1g.10gb@6", "9:3g.40gb@4")
    for policy in Policy:
        stands = {p.what: p for p in published(boards, policy=policy)}
        for plan in rerank([*stands.values()], boards, now, policy):
            stands[plan.what] = plan
        assert rerank([*stands.values()], boards, now, policy) == ()


def test_each_group_of_eight_is_judged_by_itself():
    written = stale(node(16), NOTHING, live("9:1g.10gb@6"))
    assert [p.what for p in written] == ["small-2", "large-2", "double-2"]


def test_a_slice_that_is_not_published_is_no_matter_of_order():
    with pytest.raises(KeyError, match="small"):
        rerank((), node(1), NOTHING, PACKED)


def test_the_scheduler_passes_over_what_is_withheld_so_it_makes_no_write_by_itself():
    assert stale(node(2), NOTHING, live(withheld={0: 0xFF})) == ()
    assert [p.what for p in stale(node(2), NOTHING, live(withheld={1: 0x0F}))] == [
        "small",
        "large",
        "double",
    ]


def test_a_sick_gpu_makes_a_write_only_where_the_next_one_would_be_a_wrong_one():
    boards = node(3)
    sick = all_of(boards, 0)
    assert stale(boards, NOTHING, live(tainted=sick)) == ()
    used = "0:3g.40gb@4", "2:3g.40gb@4"
    then = live(used[0])
    assert stale(boards, then, live(*used)) == ()
    (first, *_) = written = stale(boards, then, live(*used, tainted=sick))
    assert (first.what, spell(first.devices[:1])) == ("small", ["2@0"])
    assert {p.what for p in written} == {"small", "large", "double"}
