"""Whatever state a node is found in, repairs end, touch nothing foreign and take nothing in use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hypothesis import given, strategies as st

from driver.core.ids import ClaimUID, DeviceName
from driver.core.inventory import build_inventory
from driver.core.ledger import Entry, Made, Phase, with_made
from driver.core.recovery import (
    Facts,
    Forget,
    Rebuild,
    RemoveCdi,
    Repair,
    RestoreCdi,
    TakeBack,
    is_released,
    plan_repairs,
)
from driver.core.recovery_rebuild import Asked, CdiFile, GpuNow, KnownClaim
from driver.core.snapshot import ComputeFacts, InstanceFacts
from tests.data.mig_boards import H100
from tests.unit.core.given import POOL, cut, entry, part, snapshot, uuid

INVENTORY = build_inventory(snapshot(cut(0), cut(1)))
PROFILES = {p.id: p.name for p in H100.profiles}
PLACES = [(gpu, start) for gpu in (0, 1) for start in range(7)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """How one place of 1g is found. `entry`: a phase, `old` of an earlier boot, or none."""

    claim: str
    entry: str
    file: str
    hardware: str
    name: str = "a"


FOUND = st.builds(
    Found,
    claim=st.sampled_from(["live", "gone", "unallocated", "unknown"]),
    entry=st.sampled_from(["started", "completed", "old", ""]),
    file=st.sampled_from(["right", "altered", "garbage", ""]),
    hardware=st.sampled_from(["whole", "bare", ""]),
)
FOREIGN = Found(claim="unknown", entry="", file="", hardware="whole")


@dataclass
class Node:
    hardware: dict[tuple[int, int], str] = field(default_factory=dict)
    entries: dict[ClaimUID, Entry] = field(default_factory=dict)
    files: dict[ClaimUID, CdiFile] = field(default_factory=dict)
    altered: set[ClaimUID] = field(default_factory=set)
    claims: dict[ClaimUID, KnownClaim | None] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)

    def facts(self) -> Facts:
        complete = {u for u, e in self.entries.items() if e.phase is Phase.COMPLETED}
        present = {u for u, e in self.entries.items() if e.boot_id == "boot-1"}
        return Facts(
            boot_id="boot-1",
            pool=POOL,
            gpus={
                uuid(n): GpuNow(
                    instances=tuple(
                        _instance(*at, kind) for at, kind in self.hardware.items() if at[0] == n
                    ),
                    profiles=PROFILES,
                    cut=True,
                )
                for n in (0, 1)
                if n not in self.lost
            },
            entries=dict(self.entries),
            files=dict(self.files),
            claims=dict(self.claims),
            stale=frozenset((complete & present) - (self.files.keys() - self.altered)),
            released_for=dict.fromkeys(self.entries, 1e9),
            grace=120.0,
        )

    def apply(self, repair: Repair) -> None:
        match repair:
            case RestoreCdi(entry=done):
                self.files[done.uid] = _file(done)
                self.altered.discard(done.uid)
            case RemoveCdi(uid=uid):
                del self.files[uid]
            case Rebuild(entry=made):
                self.entries[made.uid] = made
            case TakeBack(entry=ended):
                for holding in ended.holdings:
                    assert holding.slot
                    assert holding.slot.ours
                    at = (int(holding.gpu[4:12], 16), holding.slot.start)
                    self.hardware.pop(at, None)
                self._forget(ended.uid)
            case Forget(entry=old):
                self._forget(old.uid)

    def _forget(self, uid: ClaimUID) -> None:
        del self.entries[uid]
        self.files.pop(uid, None)


def _instance(gpu: int, start: int, kind: str) -> InstanceFacts:
    profile = H100.profile("1g.10gb")
    compute = (ComputeFacts(id=0, uuid=f"MIG-{gpu}-{start}"),) if kind == "whole" else ()
    return InstanceFacts(
        id=start + 1, profile_id=profile.id, placement=profile.placements[start], compute=compute
    )


def _file(made: Entry) -> CdiFile:
    return CdiFile(devices={h.device: h.uuid for h in made.holdings})


def node(found: Sequence[Found], lost: set[int]) -> Node:
    """One place after the other, each found in its way."""
    made = Node(lost=lost)
    for (gpu, start), each in zip(PLACES, found, strict=False):
        device = part(gpu, "1g.10gb", start)
        started = entry(f"{gpu}-{start}", INVENTORY, device)
        uid = started.uid
        done = with_made(
            replace(started, phase=Phase.COMPLETED),
            device,
            Made(instance=start + 1, compute=0, uuid=f"MIG-{gpu}-{start}"),
        )
        kinds = {"started": started, "completed": done, "old": replace(done, boot_id="boot-0")}
        if each.entry:
            made.entries[uid] = kinds[each.entry]
        if each.hardware:
            made.hardware[gpu, start] = each.hardware
        if each.file:
            made.files[uid] = CdiFile(devices=None) if each.file == "garbage" else _file(done)
        if each.file in ("altered", "garbage"):
            made.altered.add(uid)
        known = KnownClaim(namespace="ns", name=f"{gpu}-{start}", devices=_asked(each, device))
        if each.claim != "unknown":
            made.claims[uid] = None if each.claim == "gone" else known
    return made


def _asked(found: Found, device: DeviceName) -> dict[DeviceName, Asked]:
    return {device: Asked(request="gpu")} if found.claim == "live" else {}


@given(st.lists(FOUND, max_size=len(PLACES)), st.sets(st.integers(0, 1)))
def test_a_second_plan_only_ends_what_the_first_found_again_and_a_third_is_empty(
    found, lost
) -> None:
    model = node(found, lost)
    for repair in plan_repairs(model.facts()):
        model.apply(repair)
    second = plan_repairs(model.facts())
    assert all(isinstance(r, TakeBack | RestoreCdi) for r in second)
    for repair in second:
        model.apply(repair)
    assert plan_repairs(model.facts()) == ()


@given(st.lists(st.one_of(FOUND, st.just(FOREIGN)), max_size=len(PLACES)))
def test_nothing_foreign_is_touched_and_nothing_that_a_claim_holds_is_taken(found) -> None:
    model = node(found, set())
    before = dict(model.hardware)
    held = dict(model.entries)
    ended = {u for u in held if is_released(u, _devices(held[u]), model.claims)}
    for _ in range(3):
        for repair in plan_repairs(model.facts()):
            model.apply(repair)
    assert {u: e for u, e in model.entries.items() if u in held and u not in ended} == {
        u: e for u, e in held.items() if u not in ended
    }
    for at, each in zip(PLACES, found, strict=False):
        unexplained = not each.entry and each.file in ("", "garbage")
        if unexplained or each.claim in ("live", "unknown") or each.entry == "old":
            assert model.hardware.get(at) == before.get(at)


@given(st.lists(FOUND, max_size=len(PLACES)))
def test_without_the_api_nothing_is_taken_or_removed(found) -> None:
    model = node(found, set())
    model.claims.clear()
    plan = plan_repairs(model.facts())
    assert all(isinstance(r, RestoreCdi | Rebuild) for r in plan)


def _devices(held: Entry) -> frozenset[DeviceName]:
    return frozenset(h.device for h in held.holdings)
