"""What does not fit between ledger, hardware, CDI folder and live claims, and what mends it.

Why it exists: a crash, a damaged file or a claim that was deleted while we were away leaves one of
them behind the others. `Facts -> Repairs` is decided here, one repair a claim at most, so that it
can be decided again for one claim when it is that claim's turn.

What is not known is never a reason to act: a GPU that does not answer, a claim that could not be
asked for. What neither an entry nor a CDI file of ours explains is somebody else's. Must not know
how anything is read or carried out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from driver.core.ids import ClaimUID, DeviceName, GpuUuid, PoolName
from driver.core.ledger import Entry, Phase, conflict
from driver.core.recovery_rebuild import (
    CdiFile,
    Found,
    GpuNow,
    KnownClaim,
    find_devices,
    named,
    rebuilt,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """`gpus`: those that answer now. `claims`: what the API said of a claim, None where it is gone;
    a claim that is not in it could not be asked for. `stale`: complete entries whose CDI file is
    missing or altered. `released_for`: seconds since a claim was first seen to be gone or without
    its devices, and at each look since. `grace`: how long that must last.
    """

    boot_id: str
    pool: PoolName
    gpus: Mapping[GpuUuid, GpuNow]
    entries: Mapping[ClaimUID, Entry]
    files: Mapping[ClaimUID, CdiFile] = field(default_factory=dict)
    claims: Mapping[ClaimUID, KnownClaim | None] = field(default_factory=dict)
    stale: frozenset[ClaimUID] = frozenset()
    released_for: Mapping[ClaimUID, float] = field(default_factory=dict)
    grace: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreCdi:
    """A container that starts anew in a running pod finds its file again."""

    entry: Entry

    @property
    def uid(self) -> ClaimUID:
        return self.entry.uid


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveCdi:
    """A file that nothing uses: no entry, no claim, no device."""

    uid: ClaimUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuild:
    """The ledger lost an entry; its CDI file and the hardware still have it."""

    entry: Entry

    @property
    def uid(self) -> ClaimUID:
        return self.entry.uid


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeBack:
    """What an ended claim still holds here. `when_idle`: a container may run; look for processes
    first.
    """

    entry: Entry
    when_idle: bool

    @property
    def uid(self) -> ClaimUID:
        return self.entry.uid


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    """An entry of an earlier boot whose claim has ended: nothing of it is on the hardware."""

    entry: Entry

    @property
    def uid(self) -> ClaimUID:
        return self.entry.uid


Repair = RestoreCdi | RemoveCdi | Rebuild | TakeBack | Forget


def plan_repairs(facts: Facts) -> tuple[Repair, ...]:
    """By claim UID."""
    uids = sorted(facts.entries.keys() | facts.files.keys())
    return tuple(r for uid in uids if (r := repair_of(uid, facts)) is not None)


def repair_of(uid: ClaimUID, facts: Facts) -> Repair | None:
    """The repair of one claim, if it needs one."""
    entry = facts.entries.get(uid)
    if entry is None:
        return _without_entry(uid, facts.files[uid], facts) if uid in facts.files else None
    if entry.boot_id != facts.boot_id:
        return Forget(entry=entry) if is_released(uid, devices_of(entry), facts.claims) else None
    if is_released(uid, devices_of(entry), facts.claims):
        return _ended(entry, facts)
    claim = facts.claims.get(uid)
    if claim is not None and (known := named(entry, claim)) != entry:
        return Rebuild(entry=known)
    if entry.phase is Phase.COMPLETED and uid in facts.stale:
        return RestoreCdi(entry=entry)
    return None


def is_released(
    uid: ClaimUID,
    devices: frozenset[DeviceName],
    claims: Mapping[ClaimUID, KnownClaim | None],
) -> bool:
    """Whether the API said that the claim is gone, or has none of these devices any more."""
    if uid not in claims:
        return False
    claim = claims[uid]
    return claim is None or devices.isdisjoint(claim.devices)


def devices_of(entry: Entry) -> frozenset[DeviceName]:
    return frozenset(h.device for h in entry.holdings)


def _ended(entry: Entry, facts: Facts) -> Repair | None:
    """A claim that was never complete has no container. One that was may have one still: a pod
    that was deleted by force leaves the API before its containers end.
    """
    if any(gpu not in facts.gpus for gpu in entry.gpus):
        return None
    if not entry.may_run:
        return TakeBack(entry=entry, when_idle=False)
    if facts.released_for.get(entry.uid, 0.0) < facts.grace:
        return None
    return TakeBack(entry=entry, when_idle=True)


def _without_entry(uid: ClaimUID, file: CdiFile, facts: Facts) -> Repair | None:
    devices = file.devices
    gone = uid in facts.claims and facts.claims[uid] is None
    useless = RemoveCdi(uid=uid) if gone else None
    if devices is None:
        # Not a specification of ours any more; only the claim's own end says that nobody needs it.
        return useless
    found = find_devices(devices, facts.gpus)
    if found is None:
        return None
    if not found:
        unused = is_released(uid, frozenset(devices), facts.claims)
        return RemoveCdi(uid=uid) if unused else None
    claim = facts.claims.get(uid)
    own = found if claim else _own(uid, found, facts, gone=gone)
    if own is None:
        return None
    entry = rebuilt(uid, own, claim, pool=facts.pool, boot_id=facts.boot_id)
    if not own or conflict(entry, facts.entries.values()):
        return useless
    return Rebuild(entry=entry)


def _own(
    uid: ClaimUID, found: tuple[Found, ...], facts: Facts, *, gone: bool
) -> tuple[Found, ...] | None:
    """What of it nobody else has; None where only the API can tell.

    What others hold is theirs: this claim, if it has ended, only watched it, or had it before. Of
    two claims that name one device, and have no entry, one only watches it.
    """
    held = _held(facts)
    own = tuple(f for f in found if f.uuid not in held)
    unclear = (own != found and not gone) or {f.uuid for f in own} & _named_elsewhere(uid, facts)
    return None if unclear else own


def _held(facts: Facts) -> set[str]:
    """UUIDs of what entries of this boot hold."""
    present = (e for e in facts.entries.values() if e.boot_id == facts.boot_id)
    return {h.uuid for e in present for h in e.holdings}


def _named_elsewhere(uid: ClaimUID, facts: Facts) -> set[str]:
    """UUIDs in files of other claims that have no entry either."""
    others = facts.files.keys() - facts.entries.keys() - {uid}
    return {uuid for other in others for uuid in (facts.files[other].devices or {}).values()}
