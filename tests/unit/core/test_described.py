"""A node described once: what order and taints do not change, and the layout without counters."""

from api.resource.limits import problems
from driver.core.choices import DEFAULT
from driver.core.described import describe_node
from driver.core.inventory import build_inventory
from driver.core.pools import build_pool, offer
from driver.core.reorder import settle
from tests.unit.core.given import DRIVER, NODE, cut, gpu, instance, part, snapshot
from tests.unit.core.given_mig import live
from tests.unit.core.test_reorder import stored

FREE, TAKEN = cut(0), cut(1)
MADE = cut(
    2,
    instance("3g.40gb", 4, "MIG-a", number=1),
    instance("1g.10gb", 2, "MIG-b", number=2),
    enabled=True,
    switchable=False,
)
NODE_OF_ALL = build_inventory(snapshot(FREE, TAKEN, MADE, gpu(3)))


def described(counters=True):
    return describe_node(NODE_OF_ALL, DEFAULT, driver=DRIVER, node=NODE, counters=counters)


def test_what_is_described_once_serves_every_state_of_the_node():
    once = described()
    for state in (live(), live("1:1g.10gb@6", "0"), live("0:3g.40gb@4", "1:3g.40gb@0")):
        assert offer(once, live=state) == build_pool(
            NODE_OF_ALL, driver=DRIVER, node=NODE, live=state
        )


def test_a_node_that_would_break_the_api_is_not_sound():
    assert described().sound
    assert not describe_node(NODE_OF_ALL, DEFAULT, driver="Tessera", node=NODE).sound


def test_without_counters_all_that_excludes_nothing_stands_in_one_slice_smallest_first():
    flat = described(counters=False)
    (only,) = flat.pool().slices
    assert only.name == f"{NODE}-{DRIVER}-00-devices"
    assert [d.name for d in only.devices] == [
        part(2, "1g.10gb", 2),
        part(2, "3g.40gb", 4),
        "gpu-00000003",
        "gpu-00000001",
        "gpu-00000000",
    ]
    assert {d.consumes for d in only.devices} == {()}
    assert flat.sound


def test_without_counters_the_order_does_not_follow_what_is_in_use():
    flat = described(counters=False)
    before = flat.pool()
    state = live("1", "3")
    assert settle(offer(flat, live=state), stored(before), flat, state) == before


def test_without_counters_more_than_64_partitions_of_one_profile_are_cut_into_slices():
    sevenths = [instance("1g.10gb", n, f"MIG-{n}", number=n) for n in range(7)]
    gpus = [cut(n, *sevenths, enabled=True, switchable=False) for n in range(16)]
    found = build_inventory(snapshot(*gpus))
    pool = describe_node(found, DEFAULT, driver=DRIVER, node=NODE, counters=False).pool()
    assert [len(s.devices) for s in pool.slices] == [64, 48]
    assert list(problems(pool)) == []
