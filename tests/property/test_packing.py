"""What holds for every board, every state and every policy."""

import random
import subprocess
import sys
from itertools import combinations

from hypothesis import assume, given, settings, strategies as st

from driver.core.counters import Counters, find_counters
from driver.core.fragmentation import repacked, score
from driver.core.geometry import offers
from driver.core.late_binding import Safe, check, choose_start
from driver.core.occupancy import Board, Live, Partition, can_take, states
from driver.core.packing import Policy, make_order
from driver.core.static_order import static_order, static_ranks
from tests.data.mig_boards import A30, H100, RTX_PRO_6000, every_profile
from tests.property.boards import geometries, lives
from tests.unit.core.given_mig import mixed, uuid

FLEET = mixed(H100, A30, None, H100, RTX_PRO_6000, listed=[*every_profile(H100), "1g.6gb"])
LIVES = lives(FLEET)


def every_offer(geometry):
    return offers([geometry], [p.name for p in geometry.profiles])[0]


def sets_without_overlap(geometry):
    parts = [(p, s) for p in geometry.profiles for s in p.starts]
    for size in range(geometry.slots + 1):
        for chosen in combinations(parts, size):
            masks = [p.mask(s) for p, s in chosen]
            if sum(masks) == sum(m for i, m in enumerate(masks) if not m & sum(masks[:i])):
                yield chosen


@given(geometries())
@settings(max_examples=60, deadline=None)
def test_counters_admit_what_the_rule_allows_and_nothing_else(geometry):
    found = find_counters(every_offer(geometry))
    assert isinstance(found, Counters)
    possible = [*sets_without_overlap(geometry)]
    compute = max(p.max_instances * p.compute_slices for p in geometry.profiles)

    def counted(chosen):
        profiles = [p for p, _ in chosen]
        return sum(p.compute_slices for p in profiles) <= compute and all(
            profiles.count(p) <= p.max_instances for p in profiles
        )

    base = [c for c in possible if counted(c) and not any(p.is_variant for p, _ in c)]
    flow = max(
        *(p.max_instances * p.ofa for p in geometry.profiles),
        *(sum(p.ofa for p, _ in c) for c in base),
        0,
    )
    for chosen in possible:
        left = dict(found.counter_set("gpu").counters)
        for profile, start in chosen:
            for name, amount in found.partition("gpu", profile, start).counters:
                left[name] -= amount
        holds = counted(chosen) and sum(p.ofa for p, _ in chosen) <= flow
        assert (min(left.values()) >= 0) == holds


@given(geometries())
@settings(max_examples=60, deadline=None)
def test_the_static_order_of_any_board_has_every_start_once(geometry):
    for profile in geometry.profiles:
        assert sorted(static_order(geometry)[profile.name]) == list(profile.starts)


@given(geometries(), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_where_late_binding_is_called_safe_no_sequence_gets_stuck(geometry, chance):
    """Claims are admitted by counts, as the best counters would; starts are chosen late."""
    offer = every_offer(geometry)
    assume(check(offer) == Safe())
    found = find_counters(offer)
    assert isinstance(found, Counters)
    admitted = {
        tuple(sorted(p.name for p, _ in c))
        for c in sets_without_overlap(geometry)
        if all(
            sum(x.weights[geometry.profiles.index(p)] for p, _ in c) <= x.total
            for x in found.limits
        )
    }
    running: list[tuple[str, int]] = []
    for _ in range(60):
        name = chance.choice(geometry.profiles).name
        if running and chance.random() < 0.4:
            running.remove(chance.choice(running))
        elif tuple(sorted([name, *(n for n, _ in running)])) in admitted:
            start = choose_start(offer, running, name)
            assert start is not None, f"{name} was admitted beside {running}"
            running.append((name, start))


@given(LIVES, st.sampled_from(Policy))
@settings(max_examples=60, deadline=None)
def test_every_device_is_listed_once_and_in_front_exactly_if_it_can_be_taken(state, policy):
    order = make_order(FLEET, state, policy)
    rooms = {b.uuid: (b, s) for b, s in zip(FLEET, states(FLEET, state), strict=True)}
    kinds = order.kinds()
    assert all(can_take(*rooms[r.gpu], r) for k in kinds for r in k.feasible)
    assert not any(can_take(*rooms[r.gpu], r) for k in kinds for r in k.blocked)
    refs = [r for k in kinds for r in (*k.feasible, *k.blocked)]
    assert len(refs) == len(set(refs)) == sum(b.full + b.partitions() for b in FLEET)


@given(LIVES)
@settings(max_examples=60, deadline=None)
def test_packed_has_used_gpus_before_idle_ones_and_each_gpu_in_one_piece(state):
    idle = {b.uuid: s.idle for b, s in zip(FLEET, states(FLEET, state), strict=True)}
    for ranked in make_order(FLEET, state, Policy.PACKED).profiles.values():
        gpus = [r.gpu for r in ranked.feasible]
        assert [idle[g] for g in gpus] == sorted(idle[g] for g in gpus)
        assert len([g for g, before in zip(gpus, ["", *gpus], strict=False) if g != before]) == len(
            set(gpus)
        )


@given(LIVES)
@settings(max_examples=60, deadline=None)
def test_distributed_goes_placement_by_placement_the_emptiest_gpu_first(state):
    load = dict(zip((b.uuid for b in FLEET), states(FLEET, state), strict=True))
    ranks = {b.uuid: static_ranks(b.offer.geometry) for b in FLEET if b.offer}
    for ranked in make_order(FLEET, state, Policy.DISTRIBUTED).profiles.values():
        keys = [
            (ranks[r.gpu][r.profile, r.start], load[r.gpu].instances, r.gpu)
            for r in ranked.feasible
        ]
        assert keys == sorted(keys)


@given(LIVES)
@settings(max_examples=30, deadline=None)
def test_repacking_loses_nothing_and_the_score_is_a_share(state):
    after = repacked(FLEET, state)
    assert sorted(p.profile for p in after.partitions) == sorted(
        p.profile for p in state.partitions
    )
    assert 0 <= score(FLEET, state) <= 1
    states(FLEET, after)


@given(geometries(), st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_any_board_can_be_filled_to_the_end_in_the_order_that_is_published(geometry, count):
    """The first device of an order renewed after each claim is free, until there is none."""
    boards = [Board(uuid=uuid(n), offer=every_offer(geometry)) for n in range(count)]
    chance = random.Random(0)
    running: set[Partition] = set()
    while True:
        live = Live(partitions=frozenset(running))
        free = [r for r in make_order(boards, live, Policy.PACKED).profiles.values() if r.feasible]
        if not free:
            break
        running.add(chance.choice(free).feasible[0])
    slots = [
        (r.gpu, s)
        for r in running
        for s in range(8)
        if geometry.profile(r.profile).mask(r.start) >> s & 1
    ]
    assert len(slots) == len(set(slots))


SCRIPT = """
import hashlib
from driver.core.packing import Policy, make_order
from driver.core.layout import lay_out
from tests.data.mig_boards import H100, RTX_PRO_6000
from tests.unit.core.given_mig import live, mixed
boards = mixed(H100, RTX_PRO_6000, H100)
state = live("0:1g.10gb@6", "0:3g.40gb@0", "1:1g.24gb@0", "2:2g.20gb@4", "2:1g.10gb@0")
plans = [lay_out(boards, make_order(boards, state, p)) for p in Policy]
print(hashlib.sha256(repr(plans).encode()).hexdigest())
"""


def test_the_bytes_are_the_same_in_every_process():
    """Sets and hashes of text differ from one process to the next; an order must not."""
    digests = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(digests) == 1
    assert len(digests.pop().strip()) == 64
