"""Who holds which GPU, as playbooks over entries."""

from dataclasses import replace

import pytest

from driver.core.claims import Intent, Wanted
from driver.core.ids import ClaimUID
from driver.core.inventory import build_inventory
from driver.core.ledger import (
    Entry,
    Holding,
    Made,
    Phase,
    Slot,
    alone,
    conflict,
    entry_for,
    still_wanted,
    with_made,
)
from tests.unit.core.given import (
    POOL,
    cut,
    entry as given_entry,
    gpu,
    instance,
    part,
    snapshot,
    uuid,
)

ONE, TWO = build_inventory(snapshot(gpu(1), gpu(2))).devices.values()


def entry(name, *devices, admin=False, boot="boot-1"):
    wanted = tuple(Wanted(request="gpu", device=d, admin_access=admin) for d in devices)
    intent = Intent(namespace="ns", name=name, uid=ClaimUID(f"uid-{name}"), wanted=wanted)
    return entry_for(intent, pool=POOL, boot_id=boot)


def test_an_entry_holds_all_that_taking_back_needs():
    intent = Intent(
        namespace="ns",
        name="a",
        uid=ClaimUID("uid-a"),
        wanted=(Wanted(request="gpu", device=ONE, admin_access=True, share_id="s1"),),
    )
    got = entry_for(intent, pool=POOL, boot_id="boot-1")
    assert got == Entry(
        uid=ClaimUID("uid-a"),
        namespace="ns",
        name="a",
        boot_id="boot-1",
        holdings=(
            Holding(
                request="gpu",
                pool=POOL,
                device=ONE.name,
                gpu=uuid(1),
                cdi_id="tessera.dev/claim=uid-a-gpu-00000001",  # type: ignore[arg-type]
                admin_access=True,
                share_id="s1",
            ),
        ),
        phase=Phase.STARTED,
    )


HELD = entry("old", ONE)


@pytest.mark.parametrize(
    ("wanted", "held"),
    [
        (entry("new", ONE), []),
        (entry("new", TWO), [HELD]),
        (entry("new"), [HELD]),
        (HELD, [HELD]),
        (entry("new", ONE, admin=True), [HELD]),
        (entry("new", ONE), [entry("old", ONE, admin=True)]),
        (entry("new", ONE, boot="boot-2"), [HELD]),
    ],
    ids=["idle", "other gpu", "nothing", "again", "admin asks", "admin holds", "earlier boot"],
)
def test_a_gpu_is_given_where_nobody_else_holds_it(wanted, held):
    assert conflict(wanted, held) == ""


def test_a_gpu_that_another_claim_still_holds_is_refused_with_that_claim_named():
    held = [entry("idle", TWO, admin=True), entry("busy", TWO, ONE)]
    assert conflict(entry("new", ONE), held) == (
        "device gpu-00000001 is still held by claim ns/busy (uid-busy) as gpu-00000001;"
        " it is given on when that claim's pod has ended on this node"
    )


def test_a_part_of_a_gpu_keeps_the_whole_one_from_others():
    part = replace(HELD.holdings[0], device="gpu-00000001-mig-1g10gb-0")
    message = conflict(entry("new", ONE), [replace(HELD, holdings=(part,))])
    assert message.startswith("device gpu-00000001 is still held")
    assert "as gpu-00000001-mig-1g10gb-0" in message


CUT = build_inventory(snapshot(cut(1), cut(2)))


def cut_entry(name, *devices, **how):
    return given_entry(name, CUT, *devices, **how)


SMALL = part(1, "1g.10gb", 3)
MADE = Made(instance=7, compute=0, uuid="MIG-7")


def test_a_partition_is_held_by_its_slots_and_its_instance_is_filled_in_when_it_is_made():
    (holding,) = cut_entry("a", SMALL).holdings
    assert holding.slot == Slot(profile="1g.10gb", start=3, size=1, ours=True)
    assert (holding.mask, holding.uuid) == (0b1000, uuid(1))
    (after,) = with_made(cut_entry("a", SMALL), SMALL, MADE).holdings
    assert (after.mask, after.uuid) == (0b1000, "MIG-7")
    assert with_made(cut_entry("a", SMALL), part(1, "1g.10gb", 4), MADE) == cut_entry("a", SMALL)


def test_an_administrators_partition_is_never_ours_and_known_from_the_start():
    node = build_inventory(
        snapshot(cut(1, instance("1g.10gb", 3, "MIG-x"), enabled=True, switchable=False))
    )
    (holding,) = given_entry("a", node, SMALL).holdings
    assert holding.slot == Slot(
        profile="1g.10gb",
        start=3,
        size=1,
        ours=False,
        made=Made(instance=1, compute=0, uuid="MIG-x"),
    )


def test_what_is_only_looked_at_is_never_ours():
    (holding,) = cut_entry("a", SMALL, admin=True).holdings
    assert holding.slot == Slot(profile="1g.10gb", start=3, size=1, ours=False)


@pytest.mark.parametrize("admin", [False, True])
def test_an_entry_is_of_the_same_claim_whether_its_partition_is_made_or_not(admin):
    wanted = cut_entry("a", SMALL, admin=admin)
    made = with_made(wanted, SMALL, MADE)
    assert still_wanted(made, wanted)
    assert still_wanted(wanted, made)
    assert not still_wanted(made, cut_entry("a", part(1, "1g.10gb", 4), admin=admin))
    assert not still_wanted(made, cut_entry("a", SMALL, admin=admin, boot="boot-2"))


@pytest.mark.parametrize(("phase", "kept"), [(Phase.COMPLETED, True), (Phase.STARTED, False)])
def test_what_a_rebuilt_entry_lacks_may_be_made_again_for_a_complete_claim_alone(phase, kept):
    """What is at the place of a claim that was only begun passes for a rest of it."""
    some, all_of_it = cut_entry("a", SMALL), cut_entry("a", SMALL, part(1, "1g.10gb", 4))
    assert still_wanted(replace(some, phase=phase), all_of_it) is kept
    assert not still_wanted(replace(all_of_it, phase=phase), some)


@pytest.mark.parametrize(
    ("held", "wanted", "refused"),
    [
        (SMALL, SMALL, True),
        (SMALL, part(1, "1g.10gb", 2), False),
        (SMALL, part(1, "1g.20gb", 2), True),
        (SMALL, part(1, "4g.40gb", 0), True),
        (SMALL, part(1, "3g.40gb", 4), False),
        (SMALL, part(2, "1g.10gb", 3), False),
        (SMALL, "gpu-00000001", True),
        ("gpu-00000001", SMALL, True),
        ("gpu-00000001", "gpu-00000002", False),
    ],
)
def test_devices_conflict_where_their_slots_do(held, wanted, refused):
    assert bool(conflict(cut_entry("new", wanted), [cut_entry("old", held)])) is refused


BOTH = cut_entry("old", SMALL, part(2, "1g.10gb", 3))


@pytest.mark.parametrize(
    ("others", "left"),
    [
        ([], BOTH),
        ([BOTH], BOTH),
        ([cut_entry("new", SMALL)], cut_entry("old", part(2, "1g.10gb", 3))),
        ([cut_entry("new", "gpu-00000002")], cut_entry("old", SMALL)),
        ([cut_entry("new", SMALL, admin=True)], BOTH),
        ([cut_entry("new", SMALL, boot="boot-0")], BOTH),
    ],
)
def test_what_another_claim_holds_by_now_is_not_destroyed(others, left):
    assert alone(BOTH, others) == left
