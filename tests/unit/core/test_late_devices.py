"""What is published of a GPU whose partitions are placed at preparation, and in which order."""

from dataclasses import replace

import pytest

from api.resource.limits import is_label
from api.resource.types import Text
from driver.core.boards import Binding, check_binding
from driver.core.choices import Choices
from driver.core.described import publish
from driver.core.errors import ConfigError
from driver.core.geometry import Placement
from driver.core.ids import DeviceName, SliceName
from driver.core.inventory import build_inventory
from driver.core.layout import lay_out
from driver.core.live import find_foreign, live_state, withholding_taints
from driver.core.names import (
    LateName,
    late_name,
    partition_name,
    read_late_name,
    read_partition_name,
)
from driver.core.occupancy import NOTHING, Partition
from driver.core.packing import Policy, make_order
from driver.core.pools import Kept, build_pool
from driver.core.rerank import rerank
from driver.core.snapshot import ComputeFacts, InstanceFacts, MigState
from tests.data.mig_boards import H100
from tests.unit.core.given import DRIVER, NODE, gpu, snapshot, uuid
from tests.unit.core.test_bind import EXACT, entry, intent, place

HOPPER = MigState(capable=True, switchable=True, geometry=H100)
LATE = Choices(profiles=("1g.10gb",), binding=Binding.PREPARE)
REST = InstanceFacts(id=3, profile_id=19, placement=Placement(start=6, size=1))


def inventory(*instances, choices=LATE, count=2):
    """The first of the GPUs has `instances`."""
    gpus = [gpu(n, mig=HOPPER) for n in range(1, count + 1)]
    first = replace(gpus[0], mig=replace(HOPPER, enabled=True, pending=True, instances=instances))
    return build_inventory(snapshot(first, *gpus[1:]), choices)


def small(gpu_number, ordinal):
    return DeviceName(f"gpu-0000000{gpu_number}-mig-1g10gb-n{ordinal}")


def names(pool, what):
    return [d.name for s in pool.slices if what in s.name for d in s.devices]


@pytest.mark.parametrize(
    ("profile", "label"),
    [("1g.10gb", "1g10gb"), ("1g.24gb+me", "1g24gb-me"), ("1g.24gb-me", "1g24gb-nome")],
)
def test_a_name_has_a_number_and_is_never_read_as_a_place(profile, label):
    parent = DeviceName("gpu-4cf8db2d06c07d701a51e59b25b2c16c")
    name = late_name(parent, profile, 11)
    assert name == f"{parent}-mig-{label}-n11"
    assert is_label(name)
    assert read_late_name(name) == LateName(gpu=parent, label=label, ordinal=11)
    assert read_partition_name(name) is None
    assert read_late_name(partition_name(parent, profile, 11)) is None


def test_as_many_devices_are_offered_as_fit_and_all_sum_up_to_the_gpu():
    choices = replace(LATE, profiles=("1g.10gb", "1g.10gb+me", "7g.80gb"))
    pool = build_pool(
        inventory(choices=choices, count=1), driver=DRIVER, node=NODE, choices=choices
    )
    assert names(pool, "-gpu.tessera.dev") == [
        *(small(1, n) for n in range(7)),
        "gpu-00000001-mig-7g80gb-n0",
        "gpu-00000001",
        "gpu-00000001-mig-1g10gb-me-n0",
    ]
    (counters,) = pool.slices[0].counter_sets
    assert counters.name == f"{uuid(1).lower()}-sums"
    assert dict(counters.counters) == {"memory-slices": 8, "compute-slices": 7}
    devices = {d.name: d for s in pool.slices for d in s.devices}
    assert {n: dict(d.consumes[0].counters)["memory-slices"] for n, d in devices.items()} == {
        **{small(1, n): 1 for n in range(7)},
        "gpu-00000001-mig-1g10gb-me-n0": 1,
        "gpu-00000001-mig-7g80gb-n0": 8,
        "gpu-00000001": 8,
    }


def test_a_partition_is_described_as_one_with_a_place_is():
    late = inventory().devices[small(1, 0)]
    exact = EXACT.devices[DeviceName("gpu-00000001-mig-1g10gb-6")]
    said, as_before = publish(inventory(), late, LATE), publish(EXACT, exact, Choices())
    assert (said.attributes, said.capacity) == (as_before.attributes, as_before.capacity)
    assert dict(said.attributes)["profile"] == Text("1g.10gb")


def test_a_used_gpu_stands_before_idle_ones_and_numbers_in_order():
    here = inventory(count=3)
    live = live_state(here, [small(2, 0), small(2, 3)], [], [])
    pool = build_pool(here, driver=DRIVER, node=NODE, live=live, choices=LATE)
    order = names(pool, "small")
    assert order[:5] == [small(2, n) for n in (1, 2, 4, 5, 6)]
    assert order[5:12] == [small(1, n) for n in range(7)]
    assert order[-2:] == [small(2, 0), small(2, 3)]
    assert names(pool, "large") == ["gpu-00000003", "gpu-00000001", "gpu-00000002"]


def test_the_distributed_policy_goes_from_gpu_to_gpu():
    here = inventory(count=3)
    order = make_order(here.boards, NOTHING, Policy.DISTRIBUTED).profile("1g.10gb").feasible
    assert [(r.gpu, r.start) for r in order[:4]] == [
        (uuid(1), 0), (uuid(2), 0), (uuid(3), 0), (uuid(1), 1)
    ]  # fmt: skip


def test_what_the_sums_have_no_room_for_cannot_be_taken():
    choices = replace(LATE, profiles=("3g.40gb", "1g.10gb+me"))
    here = inventory(choices=choices, count=1)
    live = live_state(here, [DeviceName(f"gpu-00000001-mig-3g40gb-n{n}") for n in (0, 1)], [], [])
    variant = make_order(here.boards, live, Policy.PACKED).profile("1g.10gb+me")
    assert (len(variant.feasible), len(variant.blocked)) == (0, 1)


def test_an_order_is_written_anew_only_if_it_leads_to_another_gpu():
    here = inventory()
    published = lay_out(here.boards, make_order(here.boards, NOTHING, Policy.PACKED))
    first = live_state(here, [small(1, 0)], [], [])
    assert rerank(published, here.boards, first, Policy.PACKED) == ()
    other = live_state(here, [small(2, 0)], [], [])
    rewritten = rerank(published, here.boards, other, Policy.PACKED)
    assert [(p.what, p.devices[0].gpu) for p in rewritten] == [("small", uuid(2))]


def test_a_claim_that_still_runs_though_its_object_is_gone_holds_its_number():
    here = inventory()
    gone = entry(place(intent(small(1, 2), uid="gone", of=here)))
    assert live_state(here, [], [gone], []).partitions == {
        Partition(gpu=uuid(1), profile="1g.10gb", start=2)
    }


def test_an_instance_that_nobody_explains_withholds_the_gpu_because_sums_do_not_see_it():
    here = inventory(REST)
    foreign = find_foreign(here, [])
    live = live_state(here, [], [], foreign)
    taints = withholding_taints(here, live, foreign, LATE, driver=DRIVER)
    assert set(taints) == {n for n, d in here.devices.items() if d.gpu.uuid == uuid(1)}
    order = make_order(here.boards, live, Policy.PACKED)
    assert {r.gpu for r in order.profile("1g.10gb").feasible} == {uuid(2)}
    assert [r.gpu for r in order.whole.feasible] == [uuid(2)]


def test_a_partition_of_ours_is_explained_by_the_start_that_it_got():
    here = inventory(REST)
    held = entry(place(intent(small(1, 0), uid="held", of=here)))
    assert held.holdings[0].slot is not None
    assert held.holdings[0].slot.start == 6
    assert find_foreign(here, [held]) == ()


def test_a_partition_from_before_the_binding_changed_withholds_its_gpu_until_it_ends():
    old = entry(intent("gpu-00000001-mig-1g10gb-6", uid="old", of=EXACT))
    assert [f.gpu for f in find_foreign(inventory(REST), [old])] == [uuid(1)]
    back = entry(place(intent(small(1, 0), uid="back", of=inventory())))
    exact = inventory(REST, choices=Choices(profiles=("1g.10gb",)))
    (found,) = find_foreign(exact, [back])
    live = live_state(exact, [], [back], [found])
    tainted = withholding_taints(exact, live, [found], LATE, driver=DRIVER)
    assert set(tainted) == {"gpu-00000001", "gpu-00000001-mig-1g10gb-6"}


def test_what_is_in_use_while_the_binding_changes_keeps_what_it_consumes():
    before = build_pool(EXACT, driver=DRIVER, node=NODE)
    old = next(d for s in before.slices for d in s.devices if d.name.endswith("1g10gb-6"))
    counters = before.slices[0]
    kept = Kept(
        slice=SliceName(before.slices[1].name),
        position=0,
        device=old,
        counters=((SliceName(counters.name), counters.counter_sets[0]),),
    )
    pool = build_pool(inventory(), driver=DRIVER, node=NODE, choices=LATE, kept=[kept])
    assert old in [d for s in pool.slices for d in s.devices]
    assert {c.name for c in pool.slices[0].counter_sets} == {
        uuid(1).lower(),
        *(f"{uuid(n).lower()}-sums" for n in (1, 2)),
    }


def test_a_set_that_can_get_stuck_is_refused_with_its_witness_and_not_published_late():
    choices = replace(LATE, profiles=("3g.40gb", "4g.40gb"))
    with pytest.raises(ConfigError, match=r"not safe with the MIG profiles 3g\.40gb, 4g\.40gb"):
        check_binding(inventory(choices=choices).boards, Binding.PREPARE)
    check_binding(inventory().boards, Binding.PREPARE)


def test_a_partition_that_an_administrator_made_has_its_place():
    ready = replace(REST, compute=(ComputeFacts(id=0, uuid="MIG-1"),))
    static = MigState(capable=True, enabled=True, pending=True, geometry=H100, instances=(ready,))
    here = build_inventory(snapshot(gpu(1, mig=static)), replace(LATE, profiles=None))
    assert list(here.devices) == ["gpu-00000001-mig-1g10gb-6"]
