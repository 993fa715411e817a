"""When a published order is replaced, as playbooks: stored, true state, what is published next."""

from dataclasses import replace

import pytest

from api.resource.codec import NodeOwner, StoredSlice
from api.resource.types import Device, Taint, TaintEffect
from driver.core.choices import DEFAULT
from driver.core.described import describe_node
from driver.core.ids import DeviceName
from driver.core.inventory import build_inventory
from driver.core.occupancy import NOTHING
from driver.core.pools import build_pool
from driver.core.reorder import settle, was_choice, without
from tests.unit.core.given import DRIVER, NODE, cut, part, snapshot
from tests.unit.core.given_mig import all_of, live

TWO = build_inventory(snapshot(cut(0), cut(1)))
DESCRIBED = describe_node(TWO, DEFAULT, driver=DRIVER, node=NODE)
ON_1 = live("1:1g.10gb@6")


def pool(state=NOTHING, **how):
    return build_pool(TWO, driver=DRIVER, node=NODE, live=state, **how)


def stored(published):
    return [
        StoredSlice(
            name=s.name,
            uid=s.name,
            resource_version="1",
            driver=published.driver,
            pool=published.name,
            node=NODE,
            generation=1,
            count=len(published.slices),
            owner=NodeOwner(name=NODE, uid="node"),
            content=s,
            metadata={},
            taint_times={},
        )
        for s in published.slices
    ]


def settled(published, state, *, fresh=None, behind=0):
    wanted = fresh or pool(state)
    return settle(wanted, stored(published), DESCRIBED, state, behind=behind)


def first(published, profile):
    names = (d.name for s in published.slices for d in s.devices)
    return next(n for n in names if f"-mig-{profile.replace('.', '')}-" in n)


def test_an_order_that_still_leads_to_the_best_device_stands_byte_for_byte():
    state = live("0:1g.10gb@6")
    assert pool(state) != pool()
    assert settled(pool(), state) == pool()


def test_an_order_that_misleads_is_replaced_and_only_where_it_does():
    now = settled(pool(), ON_1)
    assert first(now, "1g.10gb") == part(1, "1g.10gb", 4)
    changed = [s.name for s, t in zip(now.slices, pool().slices, strict=True) if s != t]
    assert changed == [s.name for s in pool().slices if s.devices]
    assert settled(now, ON_1) == now


def test_a_device_that_looks_different_is_published_in_the_order_that_stands():
    fault = Taint(key=f"{DRIVER}/fault", value="x", effect=TaintEffect.NO_SCHEDULE)
    name = part(0, "1g.10gb", 0)
    fresh = pool(live("0:1g.10gb@6"), taints={name: (fault,)})
    now = settled(pool(), live("0:1g.10gb@6"), fresh=fresh)
    names = [[d.name for d in s.devices] for s in now.slices]
    assert names == [[d.name for d in s.devices] for s in pool().slices]
    assert [d.taints for s in now.slices for d in s.devices if d.name == name] == [(fault,)]


@pytest.mark.parametrize("change", [lambda d: d[1:], lambda d: (*d[1:], Device(name="gpu-f"))])
def test_a_slice_whose_devices_are_others_is_taken_fresh(change):
    before = pool()
    slices = tuple(replace(s, devices=change(s.devices)) if s.devices else s for s in before.slices)
    state = live("0:1g.10gb@6")
    assert settled(replace(before, slices=slices), state) == pool(state)


def test_far_behind_the_static_order_is_what_stands():
    now = settled(pool(), ON_1)
    assert settled(now, ON_1, fresh=pool(), behind=4) == pool()
    assert settled(now, ON_1, behind=3) == now


@pytest.mark.parametrize(
    ("state", "devices", "chosen", "after"),
    [
        (NOTHING, [part(0, "1g.10gb", 6)], True, live("0:1g.10gb@6")),
        (NOTHING, [part(0, "1g.10gb", 0)], False, live("0:1g.10gb@0")),
        (NOTHING, [part(1, "1g.10gb", 6)], False, ON_1),
        (ON_1, [part(1, "3g.40gb", 0)], True, live("1:1g.10gb@6", "1:3g.40gb@0")),
        (NOTHING, ["gpu-00000001"], True, live("1")),
        (NOTHING, ["gpu-00000000"], False, live("0")),
        (NOTHING, ["gpu-00000001", "gpu-00000000"], True, live("0", "1")),
        (NOTHING, [part(0, "1g.10gb", 6), part(0, "1g.10gb", 4)], True,
         live("0:1g.10gb@6", "0:1g.10gb@4")),
        (NOTHING, ["gpu-0000000f"], True, NOTHING),
    ],
)  # fmt: skip
def test_an_allocation_is_compared_with_what_the_policy_would_have_taken(
    state, devices, chosen, after
):
    assert was_choice(TWO, state, devices, DEFAULT) == (chosen, after)


def test_a_partition_is_compared_with_those_of_the_gpus_that_share_slices_with_its_own():
    sixteen = build_inventory(snapshot(*map(cut, range(16))))
    used = live("8:3g.40gb@4")
    for device, chosen in ((0, True), (1, False), (8, True), (9, False)):
        state = live() if device < 8 else used
        start = 6 if device < 8 else 0
        found, _ = was_choice(sixteen, state, [part(device, "1g.10gb", start)], DEFAULT)
        assert found is chosen
    assert was_choice(sixteen, used, [part(0, "1g.10gb", 6)], DEFAULT)[0]


def test_who_tolerates_a_taint_gets_no_wrong_device_and_who_does_not_gets_the_next():
    state = live(tainted=all_of(TWO.boards, 0))
    assert was_choice(TWO, state, [part(0, "2g.20gb", 2)], DEFAULT)[0]
    assert was_choice(TWO, state, [part(1, "1g.10gb", 6)], DEFAULT)[0]
    assert not was_choice(TWO, state, [part(1, "1g.10gb", 0)], DEFAULT)[0]


def test_what_is_given_back_is_free_in_the_state_after_it():
    full = live("0", "1:1g.10gb@6", "1:3g.40gb@0")
    names = part(1, "3g.40gb", 0), "gpu-00000000", part(1, "1g.10gb", 0), "gpu-0000000f"
    assert without(TWO, full, map(DeviceName, names)) == ON_1
