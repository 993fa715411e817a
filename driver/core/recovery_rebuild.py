"""An entry that the ledger lost, made again from its CDI file, the hardware and the claim.

The file says which devices by name and UUID, the hardware where they are, the claim for which
requests. Without the claim the entry has no name: it holds its devices, and can be taken back by
UID, until the claim is known. Must not know why the entry was lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from api.resource.claim import ResourceClaim
from driver.core.claims import base_request
from driver.core.ids import ClaimUID, DeviceName, GpuUuid, PoolName
from driver.core.ledger import Entry, Holding, Made, Phase, Slot
from driver.core.names import (
    cdi_id,
    is_of_gpu,
    profile_label,
    read_late_name,
    read_partition_name,
)
from driver.core.snapshot import InstanceFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuNow:
    """A GPU that answers. `profiles`: names by NVML's id; `cut`: we make partitions on it."""

    instances: tuple[InstanceFacts, ...] = ()
    profiles: Mapping[int, str] = field(default_factory=dict)
    cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CdiFile:
    """A file of ours: the UUID of each device; None where it cannot be read as one."""

    devices: Mapping[DeviceName, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a claim says of one of its devices. `request` is None where it was not read."""

    request: str | None = None
    admin_access: bool = False
    share_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownClaim:
    """A claim that exists, and its devices in our pool."""

    namespace: str
    name: str
    devices: Mapping[DeviceName, Asked] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A device of a CDI file that is on the hardware. `instance` is None for a whole GPU."""

    device: DeviceName
    gpu: GpuUuid
    uuid: str
    ours: bool = False
    profile: str = ""
    instance: InstanceFacts | None = None


def find_devices(
    devices: Mapping[DeviceName, str], gpus: Mapping[GpuUuid, GpuNow]
) -> tuple[Found, ...] | None:
    """Those that are there; None where a GPU that they name does not answer."""
    found: list[Found] = []
    for device, uuid in devices.items():
        gpu = next((g for g in gpus if is_of_gpu(device, g)), None)
        if gpu is None:
            return None
        now = gpus[gpu]
        if uuid == gpu:
            if not now.instances:
                found.append(Found(device=device, gpu=gpu, uuid=uuid))
            continue
        for instance in now.instances:
            profile = now.profiles.get(instance.profile_id, "")
            if is_named(device, uuid, instance, profile):
                found.append(
                    Found(
                        device=device,
                        gpu=gpu,
                        uuid=uuid,
                        ours=now.cut,
                        profile=profile,
                        instance=instance,
                    )
                )
    return tuple(found)


def is_named(device: DeviceName, uuid: str, instance: InstanceFacts, profile: str) -> bool:
    """Whether a CDI file that gives `device` this UUID means this instance of `profile`.

    After a reset another partition may have the UUID, so what the name says must be true as well:
    its start and profile. The name of a partition that was placed late says the profile alone.
    """
    if all(c.uuid != uuid for c in instance.compute):
        return False
    label = profile_label(profile)
    if (placed := read_partition_name(device)) is not None:
        return (placed.label, placed.start) == (label, instance.placement.start)
    late = read_late_name(device)
    return late is not None and late.label == label


def named_by(
    gpu: GpuUuid, instance: InstanceFacts, profile: str, files: Mapping[ClaimUID, CdiFile]
) -> ClaimUID | None:
    """Whose CDI file says that this instance is the claim's."""
    for uid, file in files.items():
        for device, uuid in (file.devices or {}).items():
            if is_of_gpu(device, gpu) and is_named(device, uuid, instance, profile):
                return uid
    return None


def rebuilt(
    uid: ClaimUID,
    found: Iterable[Found],
    claim: KnownClaim | None,
    *,
    pool: PoolName,
    boot_id: str,
) -> Entry:
    asked = claim.devices if claim else {}
    return Entry(
        uid=uid,
        namespace=claim.namespace if claim else "",
        name=claim.name if claim else "",
        boot_id=boot_id,
        holdings=tuple(_holding(uid, f, asked.get(f.device, Asked()), pool) for f in found),
        phase=Phase.COMPLETED,
    )


def named(entry: Entry, claim: KnownClaim) -> Entry:
    """`entry`, with what only its claim knows; unchanged where it was never lost, or has devices
    that are not the claim's by now.
    """
    if entry.name or entry.phase is not Phase.COMPLETED:
        return entry
    asked = {name: a for name, a in claim.devices.items() if a.request is not None}
    holdings = {h.device: h for h in entry.holdings}
    if not holdings.keys() <= asked.keys():
        return entry
    return replace(
        entry,
        namespace=claim.namespace,
        name=claim.name,
        # In the order of the claim, as it is answered.
        holdings=tuple(_asked(holdings[d], a) for d, a in asked.items() if d in holdings),
    )


def known_claim(claim: ResourceClaim, *, driver: str, pool: PoolName) -> KnownClaim:
    """Of a claim as the server has it, what concerns our pool."""
    allocation = claim.status.allocation
    return KnownClaim(
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        devices={
            DeviceName(r.device): Asked(
                request=base_request(r),
                admin_access=r.admin_access,
                share_id=r.share_id,
            )
            for r in (allocation.devices.results if allocation else ())
            if (r.driver, r.pool) == (driver, pool)
        },
    )


def _holding(uid: ClaimUID, found: Found, asked: Asked, pool: PoolName) -> Holding:
    slot = None
    if found.instance is not None:
        at = found.instance.placement
        compute = next(c for c in found.instance.compute if c.uuid == found.uuid)
        slot = Slot(
            profile=found.profile,
            start=at.start,
            size=at.size,
            ours=found.ours,
            made=Made(instance=found.instance.id, compute=compute.id, uuid=compute.uuid),
        )
    bare = Holding(
        request="",
        pool=pool,
        device=found.device,
        gpu=found.gpu,
        cdi_id=cdi_id(uid, found.device),
        slot=slot,
    )
    return _asked(bare, asked)


def _asked(holding: Holding, asked: Asked) -> Holding:
    """Who only watches a partition must never destroy it."""
    slot = holding.slot
    if slot is not None and asked.admin_access:
        slot = replace(slot, ours=False)
    return replace(
        holding,
        request=asked.request or "",
        admin_access=asked.admin_access,
        share_id=asked.share_id,
        slot=slot,
    )
