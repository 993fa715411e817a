"""What a claim wants of this driver on this node: `ResourceClaim -> Intent`.

The first step of a preparation. Every refusal is a ClaimError whose text users read in the pod's
events: it names the claim, the device and what to do.
"""

from __future__ import annotations

from dataclasses import dataclass

from api.resource.claim import ResourceClaim, Result
from driver.core.devices import Allocatable
from driver.core.errors import ClaimError
from driver.core.ids import ClaimUID, DeviceName, GpuUuid, PoolName
from driver.core.inventory import Inventory


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One allocation result. `request` is the base name: the kubelet compares it with the pod's."""

    request: str
    device: Allocatable
    admin_access: bool = False
    share_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """All that one claim wants from this driver; `wanted` may be empty."""

    namespace: str
    name: str
    uid: ClaimUID
    wanted: tuple[Wanted, ...]

    @property
    def gpus(self) -> tuple[GpuUuid, ...]:
        """Each once, in an order in which their locks may be taken."""
        return tuple(sorted({w.device.gpu.uuid for w in self.wanted}))


def own_results(claim: ResourceClaim, *, uid: ClaimUID, driver: str) -> tuple[Result, ...]:
    """What was allocated of ours. ClaimError where the claim may not be prepared at all: a call may
    come late, when its pod has ended and the claim was given up, or is another's.

    `uid` is what the kubelet asked for; the API may hold a later claim of the same name.
    """
    name = _name(claim)
    if claim.metadata.uid != uid:
        raise ClaimError(
            f"{name} was replaced: the kubelet asked for UID {uid}, the API has"
            f" {claim.metadata.uid}; the pod of the old claim must end first"
        )
    allocation = claim.status.allocation
    if allocation is None:
        raise ClaimError(f"{name} is not allocated; it is prepared after the scheduler has chosen")
    if not claim.status.reserved_for:
        raise ClaimError(
            f"{name} is reserved for no pod (status.reservedFor): the pod that it was prepared for"
            " has ended; it is prepared when the scheduler reserves it again"
        )
    return tuple(r for r in allocation.devices.results if r.driver == driver)


def read_intent(
    claim: ResourceClaim, *, uid: ClaimUID, driver: str, pool: PoolName, inventory: Inventory
) -> Intent:
    """What `own_results` means on this node. ClaimError also where it cannot be served."""
    name = _name(claim)
    own = own_results(claim, uid=uid, driver=driver)
    for config in claim.status.allocation.devices.config if claim.status.allocation else ():
        if config.opaque is None or config.opaque.driver == driver:
            raise ClaimError(
                f"{name} carries configuration ({config.source}) for {driver}, and this version"
                " takes none; remove it from the claim or its DeviceClass",
                retryable=False,
            )
    return Intent(
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        uid=uid,
        wanted=tuple(_wanted(r, name, pool, inventory) for r in own),
    )


def base_request(result: Result) -> str:
    """The request's name in the pod: a sub-request stands after a slash."""
    return result.request.partition("/")[0]


def _name(claim: ResourceClaim) -> str:
    return f"claim {claim.metadata.namespace}/{claim.metadata.name}"


def _wanted(result: Result, claim: str, pool: PoolName, inventory: Inventory) -> Wanted:
    if result.pool != pool:
        raise ClaimError(
            f"{claim}: device {result.device} is in pool {result.pool}, this node serves {pool};"
            " the pod is on the wrong node, or the node was renamed"
        )
    device = inventory.devices.get(DeviceName(result.device))
    if device is None:
        raise ClaimError(
            f"{claim}: device {result.device} of pool {pool} is not on this node now;"
            " it was removed or does not answer (see the plugin's log and nvidia-smi)"
        )
    return Wanted(
        request=base_request(result),
        device=device,
        admin_access=result.admin_access,
        share_id=result.share_id,
    )
