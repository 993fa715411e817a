"""What has been handed out on this node: one entry a claim, and the questions asked of them.

Why it exists: the kubelet asks again after restarts and takes back by UID alone, when the claim may
be gone from the API. So an entry holds all that unpreparing needs. Must not know files; the state
adapter stores entries.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from driver.core.claims import Intent
from driver.core.ids import CdiId, ClaimUID, DeviceName, GpuUuid, PoolName
from driver.core.names import cdi_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """One prepared device. `gpu`: the physical GPU that it is, or is a part of."""

    request: str
    pool: PoolName
    device: DeviceName
    gpu: GpuUuid
    cdi_id: CdiId
    admin_access: bool = False
    share_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One prepared claim. `boot_id`: of the boot that prepared it; nothing outlives that."""

    uid: ClaimUID
    namespace: str
    name: str
    boot_id: str
    holdings: tuple[Holding, ...]


def entry_for(intent: Intent, *, pool: PoolName, boot_id: str) -> Entry:
    """A pure function of the claim: a second preparation gives the same CDI names."""
    return Entry(
        uid=intent.uid,
        namespace=intent.namespace,
        name=intent.name,
        boot_id=boot_id,
        holdings=tuple(
            Holding(
                request=w.request,
                pool=pool,
                device=w.device.name,
                gpu=w.device.gpu.uuid,
                cdi_id=cdi_id(intent.uid, w.device.name),
                admin_access=w.admin_access,
                share_id=w.share_id,
            )
            for w in intent.wanted
        ),
    )


def conflict(wanted: Entry, held: Iterable[Entry]) -> str:
    """Which other claim holds what `wanted` needs, as a sentence; empty where nobody does.

    This is the last line of defence: after a forced deletion the scheduler gives a device away
    while the old container still runs. Admin access shares on purpose; a claim of an earlier boot
    holds nothing, since none of its containers can be running.
    """
    needed = {h.gpu: h.device for h in wanted.holdings if not h.admin_access}
    for entry in held:
        if entry.uid == wanted.uid or entry.boot_id != wanted.boot_id:
            continue
        for holding in entry.holdings:
            if holding.gpu in needed and not holding.admin_access:
                return (
                    f"device {needed[holding.gpu]} is still held by claim"
                    f" {entry.namespace}/{entry.name} ({entry.uid}) as {holding.device};"
                    " it is given on when that claim's pod has ended on this node"
                )
    return ""
