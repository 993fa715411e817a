"""What is repaired, for each way in which ledger, hardware, CDI folder and claims can part."""

from dataclasses import replace

import pytest

from driver.core.ids import ClaimUID, DeviceName
from driver.core.inventory import build_inventory
from driver.core.ledger import Made, Phase, with_made
from driver.core.recovery import (
    Facts,
    Forget,
    Rebuild,
    RemoveCdi,
    RestoreCdi,
    TakeBack,
    plan_repairs,
)
from driver.core.recovery_rebuild import Asked, CdiFile, GpuNow, KnownClaim, known_claim, named
from tests.data.mig_boards import H100
from tests.unit.core.given import (
    DRIVER,
    POOL,
    claim as given_claim,
    cut,
    entry,
    gpu,
    instance,
    part,
    result,
    snapshot,
    uuid,
)

INVENTORY = build_inventory(snapshot(cut(0), cut(1), gpu(2)))
PART, WHOLE = part(0, "1g.10gb", 0), DeviceName("gpu-00000002")
UID = ClaimUID("uid-a")
MADE = Made(instance=1, compute=0, uuid="MIG-a")
STARTED = entry("a", INVENTORY, PART)
CUT = replace(with_made(STARTED, PART, MADE), phase=Phase.COMPLETED)
GPU = replace(entry("a", INVENTORY, WHOLE), phase=Phase.COMPLETED)
THERE = instance("1g.10gb", 0, "MIG-a")
PROFILES = {p.id: p.name for p in H100.profiles}
LIVE = KnownClaim(namespace="ns", name="a", devices={PART: Asked(request="gpu")})
LIVE_WHOLE = replace(LIVE, devices={WHOLE: Asked(request="gpu")})
UNALLOCATED = replace(LIVE, devices={})
FILE = CdiFile(devices={PART: "MIG-a"})
WHOLE_FILE = CdiFile(devices={WHOLE: uuid(2)})
GARBAGE = CdiFile(devices=None)


def facts(held=None, *, there=(), lost=(), claims=None, file=None, gone=0.0, **more):
    gpus = {
        uuid(0): GpuNow(instances=tuple(there), profiles=PROFILES, cut=True),
        uuid(1): GpuNow(profiles=PROFILES, cut=True),
        uuid(2): GpuNow(),
    }
    given = {
        "boot_id": "boot-1",
        "pool": POOL,
        "gpus": {u: now for u, now in gpus.items() if u not in {uuid(n) for n in lost}},
        "entries": {held.uid: held} if held else {},
        "files": {UID: file} if file else {},
        "claims": {} if claims is None else claims,
        "released_for": {UID: gone},
        "grace": 120.0,
    }
    return Facts(**(given | more))


GONE, HERE = {UID: None}, {UID: LIVE}
STALE = frozenset({UID})
NAMELESS = replace(
    CUT, namespace="", name="", holdings=tuple(replace(h, request="") for h in CUT.holdings)
)
CASES = {
    "all is well": (facts(CUT, there=[THERE], claims=HERE, file=FILE), None),
    "a running claim lost its file": (
        facts(CUT, there=[THERE], claims=HERE, stale=STALE),
        RestoreCdi(entry=CUT),
    ),
    "the same, and the API is away": (
        facts(CUT, there=[THERE], stale=STALE),
        RestoreCdi(entry=CUT),
    ),
    "a file of a claim that was never complete": (facts(STARTED, stale=STALE, file=FILE), None),
    "half made, and the claim is gone": (
        facts(STARTED, there=[instance("1g.10gb", 0)], claims=GONE),
        TakeBack(entry=STARTED, when_idle=False),
    ),
    "half made, and the claim lost its allocation": (
        facts(STARTED, claims={UID: UNALLOCATED}),
        TakeBack(entry=STARTED, when_idle=False),
    ),
    "half made, and the claim is there": (facts(STARTED, claims=HERE), None),
    "half made, and nobody knows of the claim": (facts(STARTED), None),
    "half made on a GPU that does not answer": (facts(STARTED, claims=GONE, lost=[0]), None),
    "complete, and just seen to be gone": (
        facts(CUT, there=[THERE], claims=GONE, gone=119.0),
        None,
    ),
    "complete, and gone for longer than the grace": (
        facts(CUT, there=[THERE], claims=GONE, gone=120.0),
        TakeBack(entry=CUT, when_idle=True),
    ),
    "a whole GPU, gone for longer than the grace": (
        facts(GPU, claims=GONE, gone=120.0),
        TakeBack(entry=GPU, when_idle=True),
    ),
    "gone long since, but the API does not answer now": (
        facts(CUT, there=[THERE], gone=999.0),
        None,
    ),
    "gone long since, on a GPU that does not answer": (
        facts(CUT, claims=GONE, gone=999.0, lost=[0]),
        None,
    ),
    "its devices were given back, and others taken": (
        facts(CUT, there=[THERE], claims={UID: LIVE_WHOLE}, gone=120.0),
        TakeBack(entry=CUT, when_idle=True),
    ),
    "an earlier boot's, and the claim is gone": (
        facts(replace(CUT, boot_id="boot-0"), there=[THERE], claims=GONE),
        Forget(entry=replace(CUT, boot_id="boot-0")),
    ),
    "an earlier boot's, and the claim is there": (
        facts(replace(CUT, boot_id="boot-0"), claims=HERE, stale=STALE),
        None,
    ),
    "entry lost, claim known": (
        facts(there=[THERE], file=FILE, claims=HERE),
        Rebuild(entry=CUT),
    ),
    "entry lost, claim not known": (facts(there=[THERE], file=FILE), Rebuild(entry=NAMELESS)),
    "entry lost, claim gone": (
        facts(there=[THERE], file=FILE, claims=GONE),
        Rebuild(entry=NAMELESS),
    ),
    "entry of a whole GPU lost": (
        facts(file=WHOLE_FILE, claims={UID: LIVE_WHOLE}),
        Rebuild(entry=GPU),
    ),
    "rebuilt, and the claim is known now": (
        facts(NAMELESS, there=[THERE], claims=HERE),
        Rebuild(entry=CUT),
    ),
    "entry lost, another instance is at the place": (
        facts(there=[instance("1g.10gb", 0, "MIG-z")], file=FILE),
        None,
    ),
    "the same, and the claim is gone": (
        facts(there=[instance("1g.10gb", 0, "MIG-z")], file=FILE, claims=GONE),
        RemoveCdi(uid=UID),
    ),
    "entry lost, its UUID is another place's by now": (
        facts(there=[instance("1g.10gb", 1, "MIG-a")], file=FILE),
        None,
    ),
    "entry lost, its UUID is another profile's by now, and the claim is gone": (
        facts(there=[instance("3g.40gb", 0, "MIG-a")], file=FILE, claims=GONE),
        RemoveCdi(uid=UID),
    ),
    "entry lost, the GPU does not answer": (facts(file=FILE, claims=GONE, lost=[0]), None),
    "a whole GPU's file, and the GPU is cut by now": (
        facts(
            file=CdiFile(devices={DeviceName("gpu-00000000"): uuid(0)}), there=[THERE], claims=GONE
        ),
        RemoveCdi(uid=UID),
    ),
    "a file that says nothing, and the claim is gone": (
        facts(file=GARBAGE, claims=GONE),
        RemoveCdi(uid=UID),
    ),
    "a file that says nothing, and the claim is there": (facts(file=GARBAGE, claims=HERE), None),
    "a file that says nothing, and nobody knows of the claim": (facts(file=GARBAGE), None),
    "an instance that nothing of ours explains": (facts(there=[THERE]), None),
}


@pytest.mark.parametrize("case", CASES)
def test_each_case_has_its_repair(case):
    given, expected = CASES[case]
    assert plan_repairs(given) == ((expected,) if expected else ())


def test_what_a_claim_only_watches_is_never_ours_to_destroy():
    watching = replace(LIVE, devices={PART: Asked(request="watch", admin_access=True)})
    (repair,) = plan_repairs(facts(there=[THERE], file=FILE, claims={UID: watching}))
    assert isinstance(repair, Rebuild)
    (holding,) = repair.entry.holdings
    assert holding.slot is not None
    assert (holding.admin_access, holding.request, holding.slot.ours) == (True, "watch", False)


def test_which_of_two_files_for_one_partition_only_watches_is_left_to_the_api():
    files = {UID: FILE, ClaimUID("uid-b"): FILE}
    assert plan_repairs(facts(there=[THERE], files=files)) == ()
    known = facts(there=[THERE], files=files, claims=HERE)
    assert plan_repairs(known) == (Rebuild(entry=CUT),)


def test_a_file_of_an_ended_claim_whose_device_another_holds_by_now_goes():
    stray = {ClaimUID("uid-b"): FILE}
    given = facts(CUT, there=[THERE], files=stray)
    assert plan_repairs(given) == ()
    assert plan_repairs(replace(given, claims={ClaimUID("uid-b"): None})) == (
        RemoveCdi(uid=ClaimUID("uid-b")),
    )


def test_a_static_partition_is_rebuilt_as_somebody_elses():
    static = {uuid(0): GpuNow(instances=(THERE,), profiles=PROFILES)}
    (repair,) = plan_repairs(facts(gpus=static, file=FILE, claims=HERE))
    assert isinstance(repair, Rebuild)
    (holding,) = repair.entry.holdings
    assert holding.slot is not None
    assert not holding.slot.ours


@pytest.mark.parametrize(
    ("there", "found"),
    [(("1g.10gb", 5), True), (("1g.20gb", 4), False), (("1g.10gb+me", 5), False)],
    ids=["its profile", "larger", "a variant"],
)
def test_a_partition_that_was_placed_late_is_known_by_uuid_and_profile(there, found):
    late = CdiFile(devices={DeviceName("gpu-00000000-mig-1g10gb-n0"): "MIG-a"})
    repairs = plan_repairs(facts(there=[instance(*there, "MIG-a")], file=late))
    slots = [h.slot for r in repairs if isinstance(r, Rebuild) for h in r.entry.holdings]
    assert len(slots) == len(repairs)
    assert [s.start for s in slots if s is not None] == ([there[1]] if found else [])


@pytest.mark.parametrize(
    ("results", "known"),
    [
        ([result(PART)], CUT),
        ([result(PART), result("gpu-9", driver="net.example")], CUT),
        ([result(PART, pool="other/tessera")], NAMELESS),
        ([result(part(1, "1g.10gb", 0))], NAMELESS),
        ([result(PART), result(WHOLE)], CUT),
    ],
    ids=["its own", "with another driver's", "another node's", "another device", "one more"],
)
def test_a_rebuilt_entry_takes_its_name_from_a_claim_that_has_its_devices(results, known):
    found = known_claim(given_claim(*results), driver=DRIVER, pool=POOL)
    ours = replace(known, name="train", namespace="default") if known is CUT else known
    assert named(NAMELESS, found) == ours
