"""Partitions in slices: what they consume, what stays of them, what an administrator cut."""

from dataclasses import replace
from itertools import permutations

import pytest

from api.resource.limits import problems
from api.resource.types import Taint, TaintEffect
from driver.core.choices import Choices
from driver.core.inventory import build_inventory
from driver.core.modes import Mode, Rule
from driver.core.pools import Kept, build_pool
from tests.data.mig_boards import A100_80, H100
from tests.unit.core.given import DRIVER, NODE, cut, gpu, instance, part, snapshot, uuid


def pool_of(*gpus, kept=(), choices=None, **how):
    chosen = choices or Choices()
    found = build_inventory(snapshot(*gpus), chosen)
    return build_pool(found, driver=DRIVER, node=NODE, kept=kept, choices=chosen, **how)


def devices(pool):
    return {d.name: d for s in pool.slices for d in s.devices}


def consumed(device):
    return {c.counter_set: dict(c.counters) for c in device.consumes}


def whats(pool):
    return [s.name.partition(f"{DRIVER}-")[2] for s in pool.slices]


def slots(*numbers):
    return {f"memory-slice-{n}": 1 for n in numbers}


def test_a_gpu_that_can_be_cut_is_offered_whole_and_in_parts_over_one_counter_set():
    pool = pool_of(cut(0))
    assert whats(pool) == ["00-counters", "01-small", "02-large", "03-double"]
    (counters,) = pool.slices[0].counter_sets
    assert counters.name == uuid(0).lower()
    assert dict(counters.counters) == slots(*range(8))
    found = devices(pool)
    assert len(found) == 1 + 17
    assert consumed(found["gpu-00000000"]) == {counters.name: slots(*range(8))}
    assert consumed(found[part(0, "2g.20gb", 2)]) == {counters.name: slots(2, 3)}
    assert consumed(found[part(0, "1g.20gb", 6)]) == {counters.name: slots(6, 7)}


def test_a_gpu_that_cannot_be_cut_consumes_nothing():
    found = devices(pool_of(cut(0), gpu(1)))
    assert found["gpu-00000001"].consumes == ()
    assert found["gpu-00000000"].consumes


@pytest.mark.parametrize("mode", [Mode.FULL, Mode.EXCLUDED])
def test_a_rule_takes_partitions_or_the_gpu_away(mode):
    choices = Choices(rules=(Rule(mode=mode, index=0),))
    found = devices(pool_of(cut(0), gpu(1), choices=choices))
    assert set(found) == {"gpu-00000001"} | ({"gpu-00000000"} if mode is Mode.FULL else set())


def test_listed_profiles_are_the_only_ones():
    found = devices(pool_of(cut(0), choices=Choices(profiles=("1g.10gb+me", "7g.80gb"))))
    assert len(found) == 1 + 7 + 1
    assert part(0, "1g.10gb+me", 6) in found


def test_what_an_administrator_cut_is_offered_smallest_first_and_excludes_nothing():
    there = (
        instance("3g.40gb", 4, "MIG-a", number=1),
        instance("1g.10gb", 2, "MIG-b", number=7),
        instance("2g.20gb", 0, number=3),
    )
    pool = pool_of(cut(0, *there, enabled=True, pending=True, switchable=False, board=A100_80))
    static = pool.slices[-1]
    assert static.name.endswith("-static")
    assert [d.name for d in static.devices] == [part(0, "1g.10gb", 2), part(0, "3g.40gb", 4)]
    assert {d.consumes for d in static.devices} == {()}
    uuids = [dict(d.attributes)["uuid"].value for d in static.devices]
    assert uuids == ["MIG-b", "MIG-a"]


def kept_of(pool, *names):
    """As the publisher finds what is in use among the published slices."""
    counters = {c.name: (s.name, c) for s in pool.slices for c in s.counter_sets}
    return [
        Kept(
            slice=s.name,
            position=position,
            device=d,
            counters=tuple(counters[c.counter_set] for c in d.consumes),
        )
        for s in pool.slices
        for position, d in enumerate(s.devices)
        if d.name in names
    ]


@pytest.mark.parametrize("count", [2, 8, 9, 16, 17])
@pytest.mark.parametrize("lost", [0, -1])
def test_partitions_in_use_on_a_lost_gpu_stay_with_their_counters(count, lost):
    gpus = [cut(n) for n in range(count)]
    before = pool_of(*gpus)
    gone = gpus[lost]
    names = [part(gone.index, "1g.10gb", 3), part(gone.index, "3g.40gb", 4)]
    now = pool_of(*(g for g in gpus if g is not gone), kept=kept_of(before, *names))
    assert list(problems(now)) == []
    assert {n for n in devices(now) if n.startswith(f"gpu-{gone.index:08x}")} == set(names)
    for name in names:
        assert devices(now)[name] == devices(before)[name]
    sets = [c.name for s in now.slices for c in s.counter_sets]
    assert sorted(sets) == sorted(g.uuid.lower() for g in gpus)


def test_a_whole_gpu_in_use_stays_too_and_a_found_one_is_not_kept_twice():
    before = pool_of(cut(0), cut(1))
    kept = kept_of(before, "gpu-00000001")
    now = pool_of(cut(0), kept=kept)
    assert devices(now)["gpu-00000001"] == devices(before)["gpu-00000001"]
    assert pool_of(cut(0), cut(1), kept=kept) == before


@pytest.mark.parametrize("board", [H100, A100_80], ids=["H100", "A100"])
def test_a_partition_of_a_profile_that_is_not_listed_any_more_keeps_what_it_consumes(board):
    names = [p.name for p in board.profiles]
    for used, before in permutations(names, 2):
        old = pool_of(cut(0, board=board), choices=Choices(profiles=(before, used)))
        name = part(0, used, board.profile(used).starts[0])
        for left in ((before,), tuple(n for n in names if n != used)):
            now = pool_of(
                cut(0, board=board), choices=Choices(profiles=left), kept=kept_of(old, name)
            )
            assert list(problems(now)) == []
            assert devices(now)[name] == devices(old)[name]


def test_taints_go_where_they_belong_and_change_nothing_else():
    taint = Taint(key=f"{DRIVER}/foreign", value="instance", effect=TaintEffect.NO_SCHEDULE)
    name = part(0, "1g.10gb", 2)
    plain, found = pool_of(cut(0)), pool_of(cut(0), taints={name: (taint,)})
    assert devices(found)[name].taints == (taint,)
    assert {n: replace(d, taints=()) for n, d in devices(found).items()} == devices(plain)


def test_full_attributes_are_for_those_who_ask():
    name = part(0, "1g.10gb", 2)
    lean = devices(pool_of(cut(0)))[name]
    full = devices(pool_of(cut(0), choices=Choices(lean=False)))[name]
    assert [k for k, _ in lean.attributes] == ["parentUUID", "productName", "profile", "type"]
    assert [k for k, _ in lean.capacity] == ["memory"]
    assert dict(full.attributes).keys() >= {"resource.kubernetes.io/pciBusID", "driverVersion"}
    assert "uuid" not in dict(full.attributes)
    assert dict(full.capacity)["multiprocessors"] == 16
