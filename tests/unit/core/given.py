"""Nodes, claims and slices as plain values, for tests to vary."""

from typing import Any

from api.resource.claim import ResourceClaim
from driver.core.ids import GpuUuid, PoolName
from driver.core.snapshot import DriverFacts, GpuFacts, MigState, NodeSnapshot, PciAddress

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
            "status": {"allocation": {"devices": {"results": results, **devices}}},
        }
    )
