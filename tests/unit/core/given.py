"""Nodes, claims and slices as plain values, for tests to vary."""

from typing import Any

from api.resource.claim import ResourceClaim
from driver.core.claims import Intent, Wanted
from driver.core.geometry import Geometry
from driver.core.ids import ClaimUID, DeviceName, GpuUuid, PoolName
from driver.core.inventory import Inventory
from driver.core.ledger import Entry, entry_for
from driver.core.names import partition_name
from driver.core.snapshot import (
    ComputeFacts,
    DriverFacts,
    GpuFacts,
    InstanceFacts,
    MigState,
    NodeSnapshot,
    PciAddress,
)
from tests.data.mig_boards import H100

DRIVER = "gpu.tessera.dev"
NODE = "node-1"
POOL = PoolName("node-1/tessera")
FACTS = DriverFacts(driver="580.95.05", cuda=(13, 0))


def uuid(number: int) -> GpuUuid:
    return GpuUuid(f"GPU-{number:08x}-0000-4000-8000-{number:012x}")


def gpu(number: int, **changes: Any) -> GpuFacts:
    """The GPU in slot `number`, an H100 unless `changes` says otherwise."""
    facts: dict[str, Any] = {
        "uuid": uuid(number),
        "index": number,
        "minor": number,
        "pci": PciAddress(domain=0, bus=number, device=0),
        "product": "NVIDIA H100 80GB HBM3",
        "memory": 80 * 2**30,
        "mig": MigState(capable=True),
    }
    return GpuFacts(**{**facts, **changes})


def snapshot(*gpus: GpuFacts) -> NodeSnapshot:
    return NodeSnapshot(driver=FACTS, gpus=gpus)


def result(device: str, **changes: Any) -> dict[str, Any]:
    return {"request": "gpu", "driver": DRIVER, "pool": POOL, "device": device, **changes}


def claim(*results: dict[str, Any], **devices: Any) -> ResourceClaim:
    """Claim `default/train` with UID `uid-1`, allocated `results`."""
    return ResourceClaim.model_validate(
        {
            "metadata": {"name": "train", "namespace": "default", "uid": "uid-1"},
            "status": {
                "allocation": {"devices": {"results": results, **devices}},
                "reservedFor": [{"resource": "pods", "name": "pod", "uid": "uid-pod"}],
            },
        }
    )


def cut(number: int, *instances: InstanceFacts, board: Geometry = H100, **mig: Any) -> GpuFacts:
    """A GPU that can be cut without a reset, unless `mig` says otherwise."""
    state: dict[str, Any] = {"capable": True, "switchable": True, "geometry": board}
    return gpu(number, mig=MigState(**{**state, "instances": instances, **mig}))


def instance(profile: str, start: int, *uuids: str, number: int = 1) -> InstanceFacts:
    """On an H100, with a compute instance for each UUID."""
    found = H100.profile(profile)
    return InstanceFacts(
        id=number,
        profile_id=found.id,
        placement=next(p for p in found.placements if p.start == start),
        compute=tuple(ComputeFacts(id=n, uuid=uuid) for n, uuid in enumerate(uuids)),
    )


def part(number: int, profile: str, start: int) -> DeviceName:
    """The name of a partition."""
    return partition_name(DeviceName(f"gpu-{number:08x}"), profile, start)


def entry(
    name: str, inventory: Inventory, *devices: str, boot: str = "boot-1", admin: bool = False
) -> Entry:
    """What is written down for claim `name` before it is prepared."""
    wanted = tuple(
        Wanted(request="gpu", device=inventory.devices[DeviceName(d)], admin_access=admin)
        for d in devices
    )
    intent = Intent(namespace="ns", name=name, uid=ClaimUID(f"uid-{name}"), wanted=wanted)
    return entry_for(intent, pool=POOL, boot_id=boot)
