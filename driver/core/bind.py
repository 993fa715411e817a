"""Where the partitions of a claim come to lie, if that is left to preparation: `Intent -> Intent`.

Why it exists: packing without a scheduler that helps. What was allocated is one of several
partitions that are alike; its start is chosen here, by the packed policy, from what the ledger and
the hardware say of its GPU. The caller holds that GPU's lock, and writes the start down before
anything is made of it; from then on the partition is like any other.

A claim that has a start keeps it, so that it is answered the same however often it is asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from driver.core.claims import Intent
from driver.core.devices import LatePartition, MigPartition
from driver.core.errors import ClaimError
from driver.core.geometry import names
from driver.core.ids import GpuUuid
from driver.core.late_binding import choose_start
from driver.core.ledger import Entry
from driver.core.snapshot import InstanceFacts


@dataclass(frozen=True, slots=True)
class Crowded:
    """No start is free now. `reason`: a sentence that names the GPU, and who is on it."""

    reason: str


def recall(intent: Intent, known: Entry | None, *, boot_id: str) -> Intent:
    """With the starts that the claim has already. A partition of an earlier boot has none."""
    if known is None or known.boot_id != boot_id:
        return intent
    starts = {
        (h.device, h.gpu, h.slot.profile): h.slot.start
        for h in known.holdings
        if h.slot is not None
    }
    wanted = []
    for each in intent.wanted:
        device = each.device
        if isinstance(device, LatePartition):
            start = starts.get((device.name, device.gpu.uuid, device.profile.name))
            if start in device.profile.starts:
                wanted.append(replace(each, device=device.at(start)))
                continue
        wanted.append(each)
    return replace(intent, wanted=tuple(wanted))


def unbound(intent: Intent) -> frozenset[GpuUuid]:
    """The GPUs on which a start must be chosen."""
    return frozenset(
        w.device.gpu.uuid for w in intent.wanted if isinstance(w.device, LatePartition)
    )


def bind(
    intent: Intent,
    held: Collection[Entry],
    there: Mapping[GpuUuid, Sequence[InstanceFacts]],
    *,
    boot_id: str,
) -> Intent | Crowded:
    """Every partition with a start. `held`: the ledger; `there`: what is on each of `unbound`.

    An instance that no entry explains blocks its slots: it is foreign, or a rest of ours that could
    not be destroyed. Admin access is to the partition that another claim has under that name;
    ClaimError where none has.
    """
    present = [e for e in held if e.boot_id == boot_id]
    others = [e for e in present if e.uid != intent.uid]
    # What has a place already; the others are placed around it.
    own = [w.device for w in intent.wanted if isinstance(w.device, MigPartition)]
    wanted = []
    for each in intent.wanted:
        device = each.device
        if not isinstance(device, LatePartition):
            wanted.append(each)
            continue
        if each.admin_access:
            wanted.append(replace(each, device=device.at(_watched(device, others, intent))))
            continue
        gpu = device.gpu.uuid
        running, blocked = _taken(device, others)
        running += [(d.profile.name, d.start) for d in own if d.gpu.uuid == gpu]
        blocked |= _unexplained(there[gpu], present, gpu)
        start = choose_start(device.offer, running, device.profile.name, blocked=blocked)
        if start is None:
            return Crowded(_crowd(device, others))
        own.append(device.at(start))
        wanted.append(replace(each, device=own[-1]))
    return replace(intent, wanted=tuple(wanted))


def _watched(device: LatePartition, others: Sequence[Entry], intent: Intent) -> int:
    for holding in (h for e in others for h in e.holdings):
        if (holding.gpu, holding.device) == (device.gpu.uuid, device.name) and holding.slot:
            return holding.slot.start
    raise ClaimError(
        f"claim {intent.namespace}/{intent.name}: there is no partition {device.name} now that"
        " could be watched; it is made when a claim needs it"
    )


def _taken(device: LatePartition, others: Sequence[Entry]) -> tuple[list[tuple[str, int]], int]:
    """What other claims have on the GPU: (profile, start) of the offer, and slots of all else."""
    offered = names(device.offer.profiles)
    running: list[tuple[str, int]] = []
    blocked = 0
    for holding in (h for e in others for h in e.holdings):
        if holding.gpu != device.gpu.uuid or holding.admin_access:
            continue
        if holding.slot is not None and holding.slot.profile in offered:
            running.append((holding.slot.profile, holding.slot.start))
        else:
            blocked |= holding.mask
    return running, blocked


def _unexplained(there: Sequence[InstanceFacts], present: Sequence[Entry], gpu: GpuUuid) -> int:
    places = {
        (h.slot.start, h.slot.size)
        for e in present
        for h in e.holdings
        if h.gpu == gpu and h.slot is not None
    }
    blocked = 0
    for instance in there:
        if (instance.placement.start, instance.placement.size) not in places:
            blocked |= instance.placement.mask
    return blocked


def _crowd(device: LatePartition, others: Sequence[Entry]) -> str:
    holders = [
        f"claim {e.namespace}/{e.name} ({e.uid})"
        for e in others
        if any(h.gpu == device.gpu.uuid and not h.admin_access for h in e.holdings)
    ]
    return (
        f"no start for device {device.name} is free on GPU {device.gpu.uuid}, which is held by"
        f" {', '.join(holders) or 'no claim of ours'}; there is one when a pod has ended on it, or"
        " when partitions that Tessera did not make (nvidia-smi mig -lgi) are destroyed"
    )
