"""What is in use, what is somebody else's, and what is therefore withheld."""

from typing import Any

import pytest

from driver.core.boards import kept_whole
from driver.core.choices import Choices
from driver.core.ids import DeviceName
from driver.core.inventory import build_inventory, without_counters
from driver.core.live import Foreign, find_foreign, live_state, withholding_taints
from driver.core.modes import Mode, Rule
from driver.core.names import late_name
from driver.core.occupancy import NOTHING, Live
from tests.unit.core.given import DRIVER, cut, entry, gpu, instance, part, snapshot, uuid
from tests.unit.core.given_mig import live

NODE = build_inventory(snapshot(cut(0), cut(1), gpu(2)))
SMALL, LARGE, WHOLE = part(0, "1g.10gb", 6), part(1, "3g.40gb", 4), "gpu-00000000"


def held(*devices, **how):
    return entry("a", NODE, *devices, **how)


@pytest.mark.parametrize(
    ("allocated", "entries", "foreign", "expected"),
    [
        ((), (), (), live()),
        ((SMALL, LARGE), (), (), live("0:1g.10gb@6", "1:3g.40gb@4")),
        (("gpu-00000002",), (), (), live("2")),
        ((SMALL,), (held(SMALL),), (), live("0:1g.10gb@6")),
        ((), (held(SMALL, LARGE),), (), live(withheld={0: 0b0100_0000, 1: 0b1111_0000})),
        ((), (held(WHOLE, "gpu-00000002"),), (), live(withheld={0: 0xFF, 2: 1})),
        ((), (held(SMALL, admin=True),), (), live()),
        ((SMALL,), (), (Foreign(gpu=uuid(0), instance=3, slots=3),), live(
            "0:1g.10gb@6", withheld={0: 3}
        )),
        ((), (held(SMALL),), (Foreign(gpu=uuid(0), instance=3, slots=3),), live(
            withheld={0: 0b0100_0011}
        )),
        (("gpu-0000000f", "gpu-0000000f-mig-1g10gb-0"), (), (), live()),
    ],
    ids=[
        "idle", "partitions", "whole", "allocated and prepared", "only prepared",
        "whole, only prepared", "admin access", "foreign", "foreign beside ours", "not here",
    ],
)  # fmt: skip
def test_what_is_in_use(allocated, entries, foreign, expected):
    assert live_state(NODE, allocated, entries, foreign) == expected


FULL = Choices(rules=(Rule(mode=Mode.FULL, index=0),))
LARGER = Choices(profiles=("2g.20gb", "3g.40gb"))
BLIND: dict[str, Any] = {"enabled": True, "pending": True, "geometry": None}


@pytest.mark.parametrize(
    ("changed", "taken", "overlapping"),
    [
        (build_inventory(snapshot(cut(0)), LARGER), 1 << 6, {part(0, "3g.40gb", 4), WHOLE}),
        (build_inventory(snapshot(cut(0)), FULL), 1 << 6, {WHOLE}),
        (build_inventory(snapshot(cut(0, **BLIND))), 1, {WHOLE}),
        (without_counters(build_inventory(snapshot(cut(0)))), 1 << 6, {WHOLE}),
    ],
    ids=["profile not listed", "mode full", "not to be read", "no counters"],
)
@pytest.mark.parametrize(
    ("allocated", "entries"),
    [((SMALL,), ()), ((), (held(SMALL),)), ((SMALL,), (held(SMALL),))],
    ids=["allocated", "prepared", "both"],
)
def test_what_is_in_use_takes_its_slots_also_when_its_device_is_not_offered_any_more(
    changed, taken, overlapping, allocated, entries
):
    found = live_state(changed, allocated, entries, ())
    assert found.unlisted == {uuid(0): taken}
    assert found.withheld[uuid(0)] & taken
    assert not found.partitions
    foreign = {name for name, keys in tainted(changed, state=found).items() if "foreign" in keys}
    assert foreign == overlapping
    assert uuid(0) not in kept_whole(changed.boards, found, 1)


@pytest.mark.parametrize(
    "name", [part(0, "9g.90gb", 0), late_name(DeviceName(WHOLE), "1g.10gb", 2)]
)
def test_a_name_that_says_no_place_takes_its_whole_gpu(name):
    assert live_state(NODE, (name,), (), ()).unlisted == {uuid(0): 0xFF}


def test_where_an_administrator_cuts_what_is_gone_takes_nothing_from_the_others():
    rules = (Rule(mode=Mode.STATIC, index=0),)
    node = build_inventory(snapshot(cut(0, enabled=True, pending=True)), Choices(rules=rules))
    assert not live_state(node, (SMALL,), (held(SMALL),), ()).unlisted


def test_a_gpu_that_waits_for_a_reset_is_taken_as_a_whole():
    node = build_inventory(snapshot(cut(0, enabled=True), cut(1)))
    assert live_state(node, (), (), ()) == Live(withheld={uuid(0): 0xFF})


THERE = build_inventory(
    snapshot(
        cut(0, instance("1g.10gb", 6, "MIG-a"), instance("2g.20gb", 0, number=2), enabled=True),
        cut(1, instance("3g.40gb", 4, "MIG-b", number=5), enabled=True),
    )
)
LISTED = build_inventory(snapshot(cut(0), cut(1)), Choices(profiles=("1g.10gb+me",)))
LISTED_ONLY = part(1, "1g.10gb+me", 4)
RULES = (Rule(mode=Mode.STATIC, index=0), Rule(mode=Mode.EXCLUDED, index=1))


@pytest.mark.parametrize(
    ("entries", "foreign"),
    [
        ((), {(0, 1), (0, 2), (1, 5)}),
        ((entry("a", THERE, SMALL),), {(0, 2), (1, 5)}),
        ((entry("a", THERE, part(0, "2g.20gb", 0)), entry("b", THERE, LARGE)), {(0, 1)}),
        ((entry("a", THERE, part(0, "1g.20gb", 6)),), {(0, 1), (0, 2), (1, 5)}),
        ((entry("a", THERE, SMALL, admin=True),), {(0, 1), (0, 2), (1, 5)}),
        ((entry("a", THERE, WHOLE),), {(0, 1), (0, 2), (1, 5)}),
        ((entry("a", LISTED, LISTED_ONLY), entry("b", THERE, SMALL)), {(0, 2), (1, 5)}),
    ],
    ids=["no claim", "one ours", "two ours", "another size", "only looked at", "whole", "unlisted"],
)
def test_an_instance_is_foreign_unless_a_claim_holds_exactly_its_place(entries, foreign):
    found = find_foreign(THERE, entries)
    assert {(int(f.gpu[4:12], 16), f.instance) for f in found} == foreign


def test_where_an_administrator_cuts_or_nothing_is_published_nothing_is_foreign():
    cuts = snapshot(*THERE.gpus.values())
    assert find_foreign(build_inventory(cuts, Choices(rules=RULES)), ()) == ()


def tainted(node, foreign=(), choices=None, state=NOTHING):
    found = withholding_taints(node, state, foreign, choices or Choices(), driver=DRIVER)
    return {
        name: [t.key.removeprefix(f"{DRIVER}/") for t in taints] for name, taints in found.items()
    }


def test_a_foreign_instance_taints_every_device_that_it_overlaps_and_no_other():
    foreign = [Foreign(gpu=uuid(1), instance=7, slots=0b0011_0000)]
    parts = [("1g.10gb", 4), ("1g.10gb", 5), ("1g.20gb", 4), ("2g.20gb", 4), ("3g.40gb", 4)]
    expected = {part(1, *place) for place in parts} | {"gpu-00000001"}
    assert tainted(NODE, foreign) == {name: ["foreign"] for name in expected}


def test_a_gpu_that_waits_for_a_reset_is_tainted_in_all_its_devices():
    node = build_inventory(snapshot(cut(0, pending=True), cut(1)))
    found = tainted(node)
    assert set(found) == {n for n, d in node.devices.items() if d.gpu.uuid == uuid(0)}
    assert {tuple(keys) for keys in found.values()} == {("mig-mode",)}


def test_the_last_idle_gpus_are_kept_from_partitions_only():
    found = tainted(NODE, choices=Choices(min_whole_gpus=1), state=live("2"))
    assert len(found) == 17
    assert all(name.startswith("gpu-00000001-mig-") for name in found)
