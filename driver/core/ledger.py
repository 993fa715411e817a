"""What has been handed out on this node: one entry a claim, and the questions asked of them.

Why it exists: the kubelet asks again after restarts and takes back by UID alone, when the claim may
be gone from the API. So an entry holds all that unpreparing needs. Must not know files; the state
adapter stores entries.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from api.resource.claim import Result
from driver.core.claims import Intent, Wanted, base_request
from driver.core.devices import EVERY_SLOT, LatePartition, MigPartition
from driver.core.ids import CdiId, ClaimUID, DeviceName, GpuUuid, PoolName
from driver.core.names import cdi_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """The instance behind a partition, with NVML's ids. Ids are used again, and so is `uuid`, which
    is a function of them: only place and UUID together say which partition it is.
    """

    instance: int
    compute: int
    uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """Which partition a holding is. `ours`: we make it and destroy it; else it was there before.

    `made` is None until it exists.
    """

    profile: str
    start: int
    size: int
    ours: bool
    made: Made | None = None

    @property
    def mask(self) -> int:
        return ((1 << self.size) - 1) << self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """One device of a claim. `gpu`: the physical GPU that it is; `slot`: the part of it, if any."""

    request: str
    pool: PoolName
    device: DeviceName
    gpu: GpuUuid
    cdi_id: CdiId
    admin_access: bool = False
    share_id: str | None = None
    slot: Slot | None = None

    @property
    def mask(self) -> int:
        """The slots that it occupies; all of them for a whole GPU."""
        return EVERY_SLOT if self.slot is None else self.slot.mask

    @property
    def uuid(self) -> str:
        """What the container is told: the partition's UUID, or the GPU's."""
        return self.slot.made.uuid if self.slot and self.slot.made else self.gpu


class Phase(StrEnum):
    """`STARTED` is written before the hardware is touched, `COMPLETED` before the answer."""

    STARTED = "started"
    COMPLETED = "completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One prepared claim. `boot_id`: of the boot that prepared it; nothing outlives that. `given`:
    a started one was complete before, and is made whole again.
    """

    uid: ClaimUID
    namespace: str
    name: str
    boot_id: str
    holdings: tuple[Holding, ...]
    phase: Phase = Phase.COMPLETED
    given: bool = False

    @property
    def may_run(self) -> bool:
        """Whether a container may have been given its devices."""
        return self.given or self.phase is Phase.COMPLETED

    @property
    def gpus(self) -> tuple[GpuUuid, ...]:
        """Each once, in an order in which their locks may be taken."""
        return tuple(sorted({h.gpu for h in self.holdings}))


def entry_for(intent: Intent, *, pool: PoolName, boot_id: str) -> Entry:
    """A pure function of the claim: a second preparation gives the same CDI names."""
    return Entry(
        uid=intent.uid,
        namespace=intent.namespace,
        name=intent.name,
        boot_id=boot_id,
        holdings=tuple(_holding(w, intent.uid, pool) for w in intent.wanted),
        phase=Phase.STARTED,
    )


def _holding(wanted: Wanted, uid: ClaimUID, pool: PoolName) -> Holding:
    device = wanted.device
    if isinstance(device, LatePartition):
        raise TypeError(f"{device.name} has no start yet; bind the intent first")
    slot = None
    if isinstance(device, MigPartition):
        there = device.existing
        slot = Slot(
            profile=device.profile.name,
            start=device.start,
            size=device.placement.size,
            ours=there is None and not wanted.admin_access,
            made=None
            if there is None
            else Made(instance=there.id, compute=there.compute[0].id, uuid=there.compute[0].uuid),
        )
    return Holding(
        request=wanted.request,
        pool=pool,
        device=device.name,
        gpu=device.gpu.uuid,
        cdi_id=cdi_id(uid, device.name),
        admin_access=wanted.admin_access,
        share_id=wanted.share_id,
        slot=slot,
    )


def answers(entry: Entry, results: Sequence[Result], *, boot_id: str) -> bool:
    """Whether the entry is a whole answer to a claim with these results, whatever else the node
    offers by now: what was handed out in this boot stays as it is.
    """
    return (
        entry.phase is Phase.COMPLETED
        and entry.boot_id == boot_id
        and [(h.request, h.pool, h.device, h.admin_access, h.share_id) for h in entry.holdings]
        == [(base_request(r), r.pool, r.device, r.admin_access, r.share_id) for r in results]
    )


def still_wanted(known: Entry, wanted: Entry) -> bool:
    """Whether both hold the same devices in the same boot; what was made may be known to one. Of a
    complete claim whose entry was lost, `known` may lack what was not there any more.
    """
    had, wants = _unmade(known), _unmade(wanted)
    same = had == wants or (had < wants and known.phase is Phase.COMPLETED)
    return same and known.boot_id == wanted.boot_id


def _unmade(entry: Entry) -> frozenset[Holding]:
    return frozenset(
        replace(h, slot=replace(h.slot, made=None)) if h.slot and _learns(h, h.slot) else h
        for h in entry.holdings
    )


def _learns(holding: Holding, slot: Slot) -> bool:
    """Whether the instance behind it is known only after its preparation."""
    return slot.ours or holding.admin_access


def made_anew(wanted: Entry, known: Entry | None, left: Collection[DeviceName]) -> Entry:
    """`wanted` as it is begun where the claim was known before, and has `left` of it still."""
    if known is None:
        return wanted
    slots = {h.device: h.slot for h in known.holdings if h.device in left}
    holdings = tuple(replace(h, slot=slots.get(h.device, h.slot)) for h in wanted.holdings)
    return replace(wanted, holdings=holdings, given=known.may_run)


def with_made(entry: Entry, device: DeviceName, made: Made) -> Entry:
    """`entry`, with the instance of one device known."""
    return replace(
        entry,
        holdings=tuple(
            replace(h, slot=replace(h.slot, made=made)) if h.device == device and h.slot else h
            for h in entry.holdings
        ),
    )


def alone(entry: Entry, held: Iterable[Entry]) -> Entry:
    """`entry` with what nobody else holds: nothing else may be destroyed for it.

    Two claims hold one slot only where a removal was not finished by one plugin and the other has
    given the slot on since.
    """
    others = [e for e in held if e.uid != entry.uid and e.boot_id == entry.boot_id]
    theirs = [h for e in others for h in e.holdings if not h.admin_access]
    kept = [
        ours
        for ours in entry.holdings
        if not any(h.gpu == ours.gpu and h.mask & ours.mask for h in theirs)
    ]
    return replace(entry, holdings=tuple(kept))


def conflict(wanted: Entry, held: Iterable[Entry]) -> str:
    """Which other claim holds what `wanted` needs, as a sentence; empty where nobody does.

    This is the last line of defence: after a forced deletion the scheduler gives a device away
    while the old container still runs. It compares slots, not names: a whole GPU and a partition of
    it are different devices. Admin access shares on purpose; a claim of an earlier boot holds
    nothing, since none of its containers can be running.
    """
    needed = [h for h in wanted.holdings if not h.admin_access]
    for entry in held:
        if entry.uid == wanted.uid or entry.boot_id != wanted.boot_id:
            continue
        for theirs in entry.holdings:
            for ours in needed:
                if theirs.gpu == ours.gpu and theirs.mask & ours.mask and not theirs.admin_access:
                    return (
                        f"device {ours.device} is still held by claim"
                        f" {entry.namespace}/{entry.name} ({entry.uid}) as {theirs.device};"
                        " it is given on when that claim's pod has ended on this node"
                    )
    return ""
