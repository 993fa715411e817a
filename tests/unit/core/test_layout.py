"""Which device goes into which slice, within the limits of the API."""

from collections import Counter
from itertools import product

import pytest

from api.resource.limits import problems
from driver.core.layout import fill, lay_out, lay_out_flat, shelves
from driver.core.occupancy import NOTHING, Board, Partition
from driver.core.packing import WHOLE, Policy, make_order
from tests.data.mig_boards import A30, A100_40, BOARDS, H100, RTX_PRO_6000, every_profile
from tests.property.firstfit import Publisher
from tests.unit.core.given_mig import live, mixed, node, order, spell, uuid


def plans_of(boards, state=NOTHING, policy=Policy.PACKED):
    return lay_out(boards, make_order(boards, state, policy))


def kinds_in(plan):
    return Counter(r.profile if isinstance(r, Partition) else "gpu" for r in plan.devices)


def test_eight_gpus_are_one_counter_slice_and_three_device_slices():
    counters, *devices = plans_of(node(8))
    assert counters.counter_sets == tuple(uuid(n) for n in range(8))
    assert [p.what for p in devices] == ["small", "large", "double"]
    assert [kinds_in(p) for p in devices] == [
        {"1g.10gb": 56},
        {"2g.20gb": 24, "3g.40gb": 16, "4g.40gb": 8, "gpu": 8},
        {"1g.20gb": 32},
    ]


def test_the_best_candidate_of_each_large_kind_stands_in_front():
    large = next(p for p in plans_of(node(8)) if p.what == "large")
    assert spell(large.devices[:8]) == ["0@4", "0@4", "0@0", "7", "0@2", "0@0", "1@0", "6"]


def test_what_cannot_be_taken_stands_behind_everything_that_can():
    state = live(*(f"{n}:1g.10gb@{s}" for n in range(7) for s in range(7)))
    large = next(p for p in plans_of(node(8), state) if p.what == "large")
    free = {r for r in large.devices if r.gpu == uuid(7)}
    assert set(large.devices[: len(free)]) == free


def test_sixteen_gpus_have_two_groups_and_one_order_of_whole_gpus():
    plans = plans_of(node(16))
    assert [p.what for p in plans] == [
        "counters-1",
        "counters-2",
        "small-1",
        "small-2",
        "large-1",
        "large-2",
        "double-1",
        "double-2",
    ]
    whole = [r for p in plans for r in p.devices if not isinstance(r, Partition)]
    assert spell(whole) == [str(n) for n in reversed(range(16))]
    assert len([p for p in plans if "gpu" in kinds_in(p)]) == 1


def test_variants_come_last_and_are_split_by_profile():
    plans = plans_of(node(8, RTX_PRO_6000, every_profile(RTX_PRO_6000)))
    assert [p.what for p in plans] == [
        "counters",
        "small",
        "large",
        "variants-1",
        "variants-2",
        "variants-3",
    ]
    assert all("+" in k or "-" in k for p in plans[3:] for k in kinds_in(p))


def test_a_node_without_partitions_has_one_slice_of_whole_gpus():
    (plan,) = plans_of(mixed(None, None))
    assert (plan.what, spell(plan.devices)) == ("gpus", ["1", "0"])
    (empty,) = plans_of(())
    assert (empty.what, empty.devices) == ("gpus", ())


def test_a_gpu_without_mig_shares_the_slice_of_whole_gpus():
    plans = plans_of(mixed(H100, None, H100))
    assert plans[0].counter_sets == (uuid(0), uuid(2))
    assert [spell(r for r in p.devices if not isinstance(r, Partition)) for p in plans] == [
        [],
        [],
        ["2", "1", "0"],
        [],
    ]


FLEETS = {
    **{f"{name} default": (board, None) for name, board in BOARDS.items()},
    **{f"{name} everything": (board, every_profile(board)) for name, board in BOARDS.items()},
}


def assert_legal(boards):
    plans = plans_of(boards)
    assert list(problems(Publisher(boards).pool(plans))) == []
    offered = sum(b.full + b.partitions() for b in boards)
    assert len({r for p in plans for r in p.devices}) == offered
    names = [f"{position:02d}-{plan.what}" for position, plan in enumerate(plans)]
    assert names == sorted(names)


@pytest.mark.parametrize(("board", "listed"), FLEETS.values(), ids=FLEETS)
def test_one_to_sixteen_gpus_of_any_board_stay_within_every_limit(board, listed):
    for count in range(1, 17):
        assert_legal(node(count, board, listed))


@pytest.mark.parametrize("count", [3, 8, 11, 16])
def test_mixed_nodes_stay_within_every_limit(count):
    kinds = [H100, A30, RTX_PRO_6000, A100_40, None]
    for shift, variants in product(range(5), [False, True]):
        fleet = [kinds[(n + shift) % 5] for n in range(count)]
        every = [n for board in fleet if board for n in every_profile(board)]
        assert_legal(mixed(*fleet, listed=every if variants else None))


@pytest.mark.parametrize(("board", "listed"), FLEETS.values(), ids=FLEETS)
def test_a_profile_lives_wholly_in_one_slice_of_its_group(board, listed):
    boards = node(16, board, listed)
    for group in (boards[:8], boards[8:]):
        gpus = {b.uuid for b in group}
        homes: dict[str, set[str]] = {}
        for plan in plans_of(boards):
            for ref in plan.devices:
                if isinstance(ref, Partition) and ref.gpu in gpus:
                    homes.setdefault(ref.profile, set()).add(plan.what)
        assert {len(found) for found in homes.values()} == {1}


@pytest.mark.parametrize("policy", Policy)
def test_what_is_in_use_moves_no_device_to_another_slice(policy):
    boards = node(9, H100, every_profile(H100))
    idle = plans_of(boards)
    used = plans_of(boards, live("0:1g.10gb@6", "3:3g.40gb@4", "8:1g.10gb+me@0", "7"), policy)
    assert [(p.what, set(p.devices), p.counter_sets) for p in idle] == [
        (p.what, set(p.devices), p.counter_sets) for p in used
    ]


def test_one_shelf_is_filled_as_the_whole_layout_fills_it():
    boards = node(9)
    now = order(boards, live("0:1g.10gb@6"))
    assert [fill(s, now) for s in shelves(boards)] == [p for p in lay_out(boards, now) if p.devices]
    assert [s.kinds for s in shelves(boards) if WHOLE in s.kinds] == [
        ("2g.20gb", "3g.40gb", "4g.40gb", WHOLE)
    ]


def test_without_counters_what_exists_stands_in_one_slice_smallest_first():
    boards = [Board(uuid=b.uuid, offer=b.offer, full=b.uuid == uuid(2)) for b in node(3)]
    made = live("0:1g.10gb@6", "0:3g.40gb@0", "1:1g.10gb@4", "1:1g.10gb@5").partitions
    now = order(boards, live("1:1g.10gb@4"))
    (plan,) = lay_out_flat(now, made | set(now.whole.feasible))
    assert plan.what == "devices"
    assert spell(plan.devices) == ["1@5", "0@6", "1@4", "0@0", "2"]


def test_without_counters_more_than_64_devices_are_split_between_kinds():
    boards = node(16)
    now = order(boards)
    made = {
        *now.profiles["1g.10gb"].feasible[:40],
        *now.profiles["2g.20gb"].feasible[:20],
        *now.profiles["3g.40gb"].feasible[:20],
    }
    plans = lay_out_flat(now, made)
    assert [(p.what, kinds_in(p)) for p in plans] == [
        ("devices-1", {"1g.10gb": 40, "2g.20gb": 20}),
        ("devices-2", {"3g.40gb": 20}),
    ]
    assert lay_out_flat(now, ())[0].devices == ()
