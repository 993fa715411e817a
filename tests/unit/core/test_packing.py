"""Where claims go: playbooks of what is wanted and in use, and the order that comes of it."""

from collections import Counter
from dataclasses import replace
from itertools import combinations, permutations
from time import process_time

import pytest

from driver.core.capacity import loss, table
from driver.core.errors import ContractError
from driver.core.geometry import Geometry, Placement
from driver.core.occupancy import NOTHING, Live
from driver.core.packing import WHOLE, Policy, make_order
from driver.core.static_order import static_order
from tests.data.mig_boards import A30, A100_40, BOARDS, H100, RTX_PRO_6000, every_profile
from tests.unit.core.given_mig import all_of, follow, live, mixed, node, order, spell, take, uuid

PACKED, DISTRIBUTED = Policy.PACKED, Policy.DISTRIBUTED


def offers_of(boards):
    return [p for b in boards[:1] if b.offer for p in b.offer.profiles]


def gpus(places):
    return Counter(int(p.partition("@")[0]) for p in places)


def test_small_claims_and_a_large_one_fit_one_gpu():
    wanted = ["1g.10gb", "1g.10gb", "3g.40gb", "1g.10gb"]
    places = follow(node(4), wanted)
    assert gpus(places) == {0: 4}
    assert places == ["0@6", "0@4", "0@0", "0@5"]


@pytest.mark.parametrize("wanted", sorted(set(permutations(["1g.10gb"] * 3 + ["3g.40gb"]))))
def test_they_do_in_any_sequence(wanted):
    assert gpus(follow(node(2), wanted)) == {0: 4}


def test_four_small_claims_pack_on_one_gpu_and_spread_over_four():
    assert gpus(follow(node(4), ["1g.10gb"] * 4)) == {0: 4}
    assert gpus(follow(node(4), ["1g.10gb"] * 4, policy=DISTRIBUTED)) == {0: 1, 1: 1, 2: 1, 3: 1}


def test_a_burst_that_sees_one_order_packs_and_spreads_as_well():
    packed = order(node(4)).profiles["1g.10gb"].feasible
    spread = order(node(4), policy=DISTRIBUTED).profiles["1g.10gb"].feasible
    assert spell(packed[:8]) == ["0@6", "0@4", "0@5", "0@0", "0@1", "0@2", "0@3", "1@6"]
    assert spell(spread[:6]) == ["0@6", "1@6", "2@6", "3@6", "0@4", "1@4"]


def test_a_claim_takes_the_start_that_costs_the_least_and_not_the_first_of_the_static_order():
    """A 1g at 3 has spoilt the left half, so a 2g joins it there and leaves room for a 3g."""
    boards = node(1)
    places = order(boards, live("0:1g.10gb@3")).profiles["2g.20gb"].feasible
    assert spell(places) == ["0@0", "0@4"]
    of = table(boards[0].offer)
    left, _, right = of.moves[2]
    # Two 1g, one double, one 2g and, on the right, a 3g can no longer be made.
    assert [loss(of, m, 0b1000, ()) for m in (left, right)] == [2 + 1 + 2, 2 + 1 + 2 + 3]


def test_the_fuller_of_two_gpus_that_lose_alike_is_filled_first():
    state = live("0:3g.40gb@4", "1:3g.40gb@4", "1:1g.10gb@0", "1:1g.10gb@1")
    assert follow(node(2, listed=["1g.10gb", "4g.40gb"]), ["1g.10gb"], state) == ["1@2"]


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_a_used_gpu_that_can_hold_a_claim_comes_before_an_idle_one(board):
    """For every pair of profiles on sale, and every set of up to two partitions in use."""
    names = every_profile(board)
    for listed in [None, names, *combinations(names, 2)]:
        boards = node(2, board, listed)
        parts = [(p.name, s) for p in offers_of(boards) for s in p.starts]
        for taken in [*combinations(parts, 1), *combinations(parts, 2)]:
            masks = [board.profile(n).mask(s) for n, s in taken]
            if len(masks) == 2 and masks[0] & masks[1]:
                continue
            now = order(boards, live(*(f"1:{n}@{s}" for n, s in taken)))
            for ranked in now.profiles.values():
                on = [r.gpu for r in ranked.feasible]
                assert on == sorted(on, reverse=True), (listed, taken)


def test_what_cannot_be_taken_stands_last_in_the_static_order():
    ranked = order(node(2), live("0:4g.40gb@0", "1:1g.10gb@6")).profiles["2g.20gb"]
    assert spell(ranked.feasible) == ["1@4", "1@2", "1@0", "0@4"]
    assert spell(ranked.blocked) == ["0@2", "0@0"]


def test_whole_gpus_are_taken_from_the_last_one_down():
    state = live("3", "2:1g.10gb@6", "0:1g.10gb@6")
    whole = order(node(5), state).whole
    assert (spell(whole.feasible), spell(whole.blocked)) == (["4", "1"], ["3", "2", "0"])
    assert follow(node(2), ["whole", "1g.10gb", "whole"]) == ["1", "0@6", "-"]


def test_nothing_is_offered_on_a_gpu_that_is_in_use_as_a_whole():
    now = order(node(1), live("0"))
    assert all(not r.feasible for r in now.profiles.values())
    assert not now.whole.feasible


def test_foreign_and_withheld_slots_count_as_taken():
    now = order(node(2), live(withheld={0: 0b1111_0000}))
    assert spell(now.profiles["3g.40gb"].feasible) == ["0@0", "1@4", "1@0"]
    assert spell(now.whole.feasible) == ["1"]


@pytest.mark.parametrize("policy", Policy)
def test_tainted_devices_stand_behind_those_that_are_free_on_whatever_gpu(policy):
    sick = ["0:3g.40gb@4", *all_of(node(3), 2)]
    now = order(node(3), live("0:1g.10gb@0", "2:1g.10gb@6", tainted=sick), policy)
    three = now.profiles["3g.40gb"]
    assert sorted(spell(three.feasible)) == ["1@0", "1@4"]
    assert set(spell(three.blocked)[:2]) == {"2@0", "0@4"}
    assert (spell(now.whole.feasible), spell(now.whole.blocked)) == (["1"], ["2", "0"])
    everywhere = [uuid(n) for n in range(3)]
    for kind in (*now.profiles, WHOLE):
        assert now.first(kind, everywhere) == now.ranked(kind).feasible[0]


def test_a_media_variant_is_blocked_everywhere_once_its_engine_is_taken():
    boards = node(1, H100, every_profile(H100))
    ranked = order(boards, live("0:1g.10gb+me@6")).profiles["1g.10gb+me"]
    assert (ranked.feasible, len(ranked.blocked)) == ((), 7)


def test_a_profile_that_is_no_longer_offered_still_takes_its_slots_and_engines():
    boards = node(1, H100, ["1g.10gb", "1g.10gb+me"])
    now = order(boards, live("0:3g.40gb@0"))
    assert spell(now.profiles["1g.10gb"].feasible) == ["0@6", "0@4", "0@5"]


@pytest.mark.parametrize("taken", ["0:9g.90gb@0", "0:1g.10gb@7"])
def test_a_partition_that_the_board_cannot_hold_is_named(taken):
    with pytest.raises(KeyError, match="the board has no MIG profile"):
        order(node(1), live(taken))


def test_what_is_in_use_on_a_lost_gpu_or_in_an_older_mode_leaves_the_others_in_order():
    """GPU 2 does not answer; GPU 1 is offered as a whole only, but a partition is still there."""
    now = order(mixed(H100, None), live("0:1g.10gb@6", "1:1g.10gb@6", "2:1g.10gb@6", "3"))
    assert spell(now.profiles["1g.10gb"].feasible[:1]) == ["0@4"]
    assert now.whole.feasible == ()


def test_a_board_that_no_counters_describe_is_refused_with_the_reason():
    """33 slots need more counters than one set may have."""
    wide = replace(H100.profiles[0], placements=(Placement(start=0, size=33),))
    with pytest.raises(ContractError, match="cannot be partitioned dynamically: 33 slots"):
        order(node(1, Geometry(slots=33, profiles=(wide,)), [wide.name]))


def test_boards_of_different_kinds_stand_in_one_order():
    """`1g.10gb` is the small profile of one board and the double-memory one of the other."""
    boards = mixed(A100_40, None, H100, A30)
    now = order(boards)
    assert [*now.profiles][:3] == ["1g.10gb", "1g.5gb", "1g.6gb"]
    assert spell(now.whole.feasible) == ["3", "2", "1", "0"]
    assert {r.gpu for r in now.profiles["1g.10gb"].feasible} == {uuid(0), uuid(2)}
    assert {r.gpu for r in now.profiles["2g.12gb"].feasible} == {uuid(3)}


def test_a_gpu_that_is_not_offered_as_a_whole_has_partitions_only():
    (board,) = node(1)
    board = type(board)(uuid=board.uuid, offer=board.offer, full=False)
    assert order([board]).whole == order([]).whole
    assert order([board]).profiles["1g.10gb"].feasible


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_with_nothing_in_use_it_is_the_static_order_gpu_by_gpu(board):
    static = static_order(board)
    for name, ranked in order(node(3, board)).profiles.items():
        assert spell(ranked.feasible) == [f"{g}@{s}" for g in range(3) for s in static[name]]


@pytest.mark.parametrize("policy", Policy)
def test_every_device_is_in_the_order_once_whatever_is_in_use(policy):
    boards = mixed(H100, RTX_PRO_6000, None, listed=[*every_profile(H100), "1g.24gb"])
    for state in (NOTHING, live("0:3g.40gb@4", "2"), live("1", withheld={0: 1})):
        now = order(boards, state, policy)
        refs = [r for k in now.kinds() for r in (*k.feasible, *k.blocked)]
        assert len(refs) == len(set(refs)) == 3 + sum(b.partitions() for b in boards)


@pytest.mark.parametrize("policy", Policy)
def test_the_order_depends_on_what_is_in_use_and_not_on_how_it_came_about(policy):
    state = live("0:1g.10gb@6", "1:2g.20gb@4", "0:3g.40gb@0", "3")
    again = Live(partitions=frozenset(sorted(state.partitions, reverse=True)), whole=state.whole)
    assert make_order(node(4), state, policy) == make_order(node(4), again, policy)


def test_an_order_for_eight_gpus_takes_less_than_a_millisecond_of_cpu():
    boards, state, seen = node(8), NOTHING, []
    for kind in ["1g.10gb", "2g.20gb", "3g.40gb", "1g.20gb"] * 6:
        state = take(state, order(boards, state).profiles[kind].feasible[0])
        seen.append(state)

    def once():
        before = process_time()
        for each in seen:
            order(boards, each)
        return (process_time() - before) / len(seen)

    assert min(once() for _ in range(5)) < 0.001
