"""The start of a partition, chosen when its claim is prepared."""

from dataclasses import replace

import pytest

from driver.core.bind import Crowded, bind, recall, unbound
from driver.core.boards import Binding
from driver.core.choices import Choices
from driver.core.claims import read_intent
from driver.core.devices import MigPartition
from driver.core.errors import ClaimError
from driver.core.geometry import Placement
from driver.core.ids import ClaimUID
from driver.core.inventory import build_inventory
from driver.core.ledger import Entry, conflict, entry_for
from driver.core.prepare import plan_steps
from driver.core.snapshot import InstanceFacts, MigState
from tests.data.mig_boards import H100
from tests.unit.core.given import DRIVER, POOL, claim, gpu, result, snapshot, uuid

BOOT = "boot-1"
HOPPER = MigState(capable=True, switchable=True, geometry=H100)


def inventory(*profiles, binding=Binding.PREPARE):
    choices = Choices(profiles=profiles or None, binding=binding)
    return build_inventory(snapshot(gpu(1, mig=HOPPER), gpu(2, mig=HOPPER)), choices)


HERE = inventory("1g.10gb", "7g.80gb")
EXACT = inventory("1g.10gb", "3g.40gb", binding=Binding.SCHEDULER)


def intent(*devices, uid="uid-1", of=HERE, **changes):
    obj = claim(*(result(d, **changes) for d in devices))
    obj = obj.model_copy(update={"metadata": obj.metadata.model_copy(update={"uid": uid})})
    return read_intent(obj, uid=ClaimUID(uid), driver=DRIVER, pool=POOL, inventory=of)


def entry(placed, boot=BOOT):
    return entry_for(placed, pool=POOL, boot_id=boot)


def place(wanted, held=(), there=(), boot=BOOT):
    known = next((e for e in held if e.uid == wanted.uid), None)
    left = recall(wanted, known, boot_id=boot)
    return bind(left, held, dict.fromkeys(unbound(left), there), boot_id=boot)


def starts(placed):
    assert not isinstance(placed, Crowded), placed
    assert all(isinstance(w.device, MigPartition) for w in placed.wanted)
    return [w.device.start for w in placed.wanted]


def place_of(held):
    return [h.slot.start for h in held.holdings]


def small(number, gpu=1):
    return f"gpu-0000000{gpu}-mig-1g10gb-n{number}"


def test_partitions_of_one_claim_are_packed_whatever_their_numbers():
    placed = place(intent(small(5), small(0), small(3, gpu=2)))
    assert starts(placed) == [6, 4, 6]
    assert [w.device.name for w in placed.wanted] == [small(5), small(0), small(3, gpu=2)]
    assert [step.placement.start for step in plan_steps(placed) if hasattr(step, "placement")] == [
        4,
        6,
        6,
    ]


def test_a_claim_keeps_its_start_when_others_came_and_went():
    first = entry(place(intent(small(0), uid="a")))
    second = entry(place(intent(small(1), uid="b"), [first]))
    assert starts(place(intent(small(1), uid="b"), [second])) == [4]
    assert starts(place(intent(small(1), uid="b"), [first, second])) == [4]


def test_after_a_reboot_a_start_is_chosen_anew():
    old = [entry(place(intent(small(n), uid=f"old-{n}"))) for n in range(3)]
    assert starts(place(intent(small(2), uid="old-2"), old, boot="boot-2")) == [6]


def test_a_claim_that_got_other_devices_is_placed_as_if_it_had_none():
    before = entry(place(intent(small(0))))
    assert starts(place(intent(small(4)), [before])) == [6]


def test_the_slots_of_an_instance_that_nobody_explains_are_left_alone():
    rest = InstanceFacts(id=3, profile_id=19, placement=Placement(start=6, size=1))
    assert starts(place(intent(small(0)), there=[rest])) == [4]
    ours = entry(place(intent(small(1), uid="b")))
    assert starts(place(intent(small(0)), [ours], there=[rest])) == [4]


def test_a_partition_that_was_made_for_another_binding_or_profile_is_passed_by():
    old = entry(intent("gpu-00000001-mig-3g40gb-4", uid="old", of=EXACT))
    placed = place(intent(small(0)), [old])
    assert starts(placed) == [0]
    assert conflict(entry(placed), [old]) == ""


def test_without_room_the_gpu_and_all_who_are_on_it_are_named():
    held: list[Entry] = []
    for number in range(7):
        held.append(entry(place(intent(small(number), uid=f"c{number}"), held)))
    assert sorted(start for e in held for start in place_of(e)) == [*range(7)]
    crowded = place(intent(small(0), uid="late"), held)
    assert isinstance(crowded, Crowded)
    assert uuid(1) in crowded.reason
    assert all(f"(c{number})" in crowded.reason for number in range(7))
    left = held[:3] + held[4:]
    assert starts(place(intent(small(0), uid="late"), left)) == place_of(held[3])


@pytest.mark.parametrize("first", ["gpu-00000001", "gpu-00000001-mig-7g80gb-n0"])
def test_beside_a_device_that_takes_every_slot_there_is_no_room(first):
    whole = entry(place(intent(first, uid="whole")))
    crowded = place(intent(small(0)), [whole])
    assert isinstance(crowded, Crowded)
    assert "(whole)" in crowded.reason


def test_the_full_gpu_meets_a_partition_whose_start_was_chosen():
    part = entry(place(intent(small(0), uid="part")))
    assert "still held by claim" in conflict(entry(place(intent("gpu-00000001"))), [part])


def test_nothing_is_written_down_or_made_of_a_partition_without_a_start():
    wanted = intent(small(0))
    for step in (plan_steps, entry):
        with pytest.raises(TypeError, match="has no start yet"):
            step(wanted)


def test_admin_access_is_to_the_partition_that_another_claim_has_and_takes_no_room():
    watcher = intent(small(1), uid="watcher", adminAccess=True)
    with pytest.raises(ClaimError, match="no partition gpu-00000001-mig-1g10gb-n1 now"):
        place(watcher)
    held = [entry(place(intent(small(0), uid="a")))]
    held.append(entry(place(intent(small(1), uid="b"), held)))
    watching = entry(place(watcher, held))
    assert place_of(watching) == place_of(held[1]) == [4]
    assert starts(place(watcher, [watching])) == [4]
    assert starts(place(intent(small(2)), [*held, watching])) == starts(
        place(intent(small(2)), held)
    )


def test_a_start_that_the_profile_does_not_have_is_not_recalled():
    known = entry(place(intent(small(0))))
    (holding,) = known.holdings
    odd = replace(known, holdings=(replace(holding, slot=replace(holding.slot, start=7)),))
    assert starts(place(intent(small(0)), [odd])) == [6]
