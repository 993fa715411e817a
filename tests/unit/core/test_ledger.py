"""Who holds which GPU, as playbooks over entries."""

from dataclasses import replace

import pytest

from driver.core.claims import Intent, Wanted
from driver.core.ids import ClaimUID
from driver.core.inventory import build_inventory
from driver.core.ledger import Entry, Holding, Phase, conflict, entry_for
from tests.unit.core.given import POOL, gpu, snapshot, uuid

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
