"""Which writes a difference costs, as playbooks: what is stored, what is wanted, what is done."""

from dataclasses import replace
from typing import Any

import pytest

from api.resource.codec import NodeOwner, StoredSlice
from api.resource.types import CounterSet, Device, Pool, Slice, Taint, TaintEffect
from driver.core.diff import Delete, plan_writes
from tests.unit.core.given import DRIVER, NODE, POOL

OWNER = NodeOwner(name=NODE, uid="node-uid")


def part(name: str, *devices: str) -> Slice:
    return Slice(name=name, devices=tuple(Device(name=d) for d in devices or (f"d-{name}",)))


def pool(*slices: Slice) -> Pool:
    return Pool(driver=DRIVER, node=NODE, name=POOL, slices=slices)


def stored(content: Slice, generation: int = 5, count: int = 3, **changes: Any) -> StoredSlice:
    base = StoredSlice(
        name=content.name,
        uid=f"uid-{content.name}",
        resource_version="1",
        driver=DRIVER,
        pool=POOL,
        node=NODE,
        generation=generation,
        count=count,
        owner=OWNER,
        content=content,
        metadata={},
        taint_times={},
    )
    return replace(base, **changes)


def plan(wanted: Pool, *now: StoredSlice) -> list[str]:
    """One line a write, to read in order: what, which, at which generation."""
    return [
        f"delete {w.stored.name}"
        if isinstance(w, Delete)
        else f"{'replace' if w.over else 'create'} {w.wanted.name} at {w.generation}"
        for w in plan_writes(wanted, now, owner=OWNER)
    ]


A, B, C = part("a"), part("b"), part("c")
ABC = pool(A, B, C)
NEW_A, NEW_B = part("a", "x"), part("b", "y")
AT_5 = (stored(A), stored(B), stored(C))


def test_nothing_is_written_where_nothing_differs():
    assert plan(ABC, *AT_5) == []
    assert plan(ABC, *reversed(AT_5)) == []


def test_a_first_publication_starts_at_generation_one():
    assert plan(ABC) == ["create a at 1", "create b at 1", "create c at 1"]


def test_one_changed_slice_is_replaced_in_place():
    assert plan(pool(NEW_A, B, C), *AT_5) == ["replace a at 5"]


def test_two_changed_slices_raise_the_generation_of_all():
    assert plan(pool(NEW_A, NEW_B, C), *AT_5) == [
        "replace a at 6",
        "replace b at 6",
        "replace c at 6",
    ]


def test_a_new_slice_raises_the_generation_and_is_created_last():
    assert plan(ABC, stored(A, count=2), stored(C, count=2)) == [
        "replace a at 6",
        "replace c at 6",
        "create b at 6",
    ]


def test_a_pool_that_grows_is_never_completed_at_the_generation_of_the_smaller_one():
    assert plan(pool(A, B), stored(A, count=1)) == ["replace a at 6", "create b at 6"]


def test_a_slice_that_is_no_longer_wanted_goes_first():
    assert plan(pool(A, C), *AT_5) == ["delete b", "replace a at 6", "replace c at 6"]


def test_an_emptied_pool_keeps_one_slice_without_devices():
    assert plan(pool(Slice(name="a")), *AT_5) == ["delete b", "delete c", "replace a at 6"]


def test_a_foreign_pool_of_our_driver_on_this_node_is_removed():
    other = stored(part("z"), generation=9, pool="old/tessera")
    assert plan(ABC, other, *AT_5) == ["delete z"]
    assert plan(ABC, replace(other, name="a")) == [
        "delete a",
        "create a at 1",
        "create b at 1",
        "create c at 1",
    ]


@pytest.mark.parametrize("gone", [(0,), (1, 2)])
def test_slices_that_somebody_deleted_come_back_beside_their_siblings(gone):
    left = [s for i, s in enumerate(AT_5) if i not in gone]
    assert plan(ABC, *left) == [f"create {AT_5[i].name} at 5" for i in gone]


def test_one_gone_and_one_changed_still_need_no_new_generation():
    assert plan(pool(NEW_A, B, C), stored(A), stored(C)) == ["replace a at 5", "create b at 5"]


def test_an_interrupted_bump_is_completed_at_its_own_generation():
    half = (stored(A, generation=6), stored(part("b", "old")), stored(part("c", "old")))
    assert plan(ABC, *half) == ["replace b at 6", "replace c at 6"]


def test_a_bump_that_was_interrupted_before_its_last_creation_is_completed():
    assert plan(ABC, stored(A, generation=6), stored(B, generation=6)) == ["create c at 6"]


def test_an_interrupted_bump_with_one_more_change_is_completed_with_that_change_first():
    half = (stored(part("c", "old"), generation=6), stored(A), stored(B))
    assert plan(ABC, *half) == ["replace c at 6", "replace a at 6", "replace b at 6"]


def test_an_interrupted_bump_with_more_changes_starts_another():
    half = (stored(A, generation=6), stored(B, generation=6), stored(C))
    assert plan(pool(NEW_A, NEW_B, C), *half) == [
        "replace a at 7",
        "replace b at 7",
        "replace c at 7",
    ]


def test_a_leftover_of_an_earlier_generation_is_only_deleted():
    assert plan(ABC, stored(part("z"), generation=4), *AT_5) == ["delete z"]


def test_a_node_that_was_created_again_becomes_the_owner_of_all_slices():
    before = [replace(s, owner=replace(OWNER, uid="old-node")) for s in AT_5]
    assert plan(ABC, *before) == ["replace a at 5", "replace b at 5", "replace c at 5"]
    assert plan(pool(A), stored(A, count=1, owner=None)) == ["replace a at 5"]


@pytest.mark.parametrize(
    ("over", "reason"),
    [
        (replace(stored(A, count=1), content=None), "its devices or counters differ"),
        (stored(A, count=1, owner=None), "its owner is another Node object"),
        (stored(A, count=2), "the number of slices differs"),
    ],
)
def test_each_write_says_why(over, reason):
    (write,) = plan_writes(pool(A), [over], owner=OWNER)
    assert write.reason == reason


def test_the_other_writes_of_a_round_say_why_too():
    now = [stored(part("z")), stored(A), stored(part("y"), pool="old/tessera")]
    writes = plan_writes(pool(A, B), now, owner=OWNER)
    assert [w.reason for w in writes] == [
        "its pool is no longer wanted",
        "not part of the wanted pool",
        "the number of slices differs",
        "missing",
    ]
    same_count = [stored(A, count=2), stored(part("z"), count=2)]
    assert plan_writes(pool(A, B), same_count, owner=OWNER)[1].reason == "new generation"


MANY_A, MANY_B = part("a", "1", "2", "3"), part("b", "4", "5")
TURNED_A, TURNED_B = part("a", "3", "1", "2"), part("b", "5", "4")
MANY = (stored(MANY_A), stored(MANY_B), stored(C))


def test_any_number_of_new_orders_is_written_in_place():
    assert plan(pool(TURNED_A, TURNED_B, C), *MANY) == ["replace a at 5", "replace b at 5"]


def test_one_change_beside_new_orders_is_written_in_place_too():
    assert plan(pool(TURNED_A, TURNED_B, part("c", "x")), *MANY) == [
        "replace a at 5",
        "replace b at 5",
        "replace c at 5",
    ]


@pytest.mark.parametrize(
    "other",
    [
        part("a", "3", "1"),
        part("a", "3", "1", "2", "9"),
        part("a", "3", "1", "9"),
        replace(
            TURNED_A,
            devices=(replace(TURNED_A.devices[0], capacity=(("m", 1),)), *TURNED_A.devices[1:]),
        ),
        replace(TURNED_A, counter_sets=(CounterSet(name="s", counters=(("c", 1),)),)),
    ],
    ids=["one fewer", "one more", "another", "one looks different", "counters differ"],
)
def test_what_is_more_than_a_new_order_counts_as_a_change(other):
    assert plan(pool(other, part("b", "x"), C), *MANY) == [
        f"replace {name} at 6" for name in ("a", "b", "c")
    ]
    assert plan(pool(other, TURNED_B, C), *MANY) == ["replace a at 5", "replace b at 5"]


def test_new_orders_complete_an_interrupted_bump_at_its_generation():
    half = (stored(TURNED_A, generation=6), stored(MANY_B), stored(C))
    assert plan(pool(MANY_A, TURNED_B, C), *half) == [
        "replace a at 6",
        "replace b at 6",
        "replace c at 6",
    ]


SICK = (Taint(key="d/fault", value="xid-79", effect=TaintEffect.NO_SCHEDULE),)


def sick(content: Slice) -> Slice:
    return replace(content, devices=tuple(replace(d, taints=SICK) for d in content.devices))


def test_taints_come_and_go_in_place_in_any_number_of_slices_and_beside_new_orders():
    assert plan(pool(sick(MANY_A), sick(TURNED_B), C), *MANY) == [
        "replace a at 5",
        "replace b at 5",
    ]
    tainted = (stored(sick(MANY_A)), stored(sick(MANY_B)), stored(C))
    assert plan(pool(MANY_A, MANY_B, C), *tainted) == ["replace a at 5", "replace b at 5"]


def test_taints_of_devices_that_changed_otherwise_do_not_hide_the_change():
    assert plan(pool(sick(NEW_A), sick(NEW_B), C), *AT_5) == [
        f"replace {name} at 6" for name in ("a", "b", "c")
    ]
