"""What kubectl would print for nodes of this driver, made by the driver's own code."""

from __future__ import annotations

from typing import Any

from api.resource.codec import NodeOwner, encode_slice
from driver.core.boards import Binding
from driver.core.choices import Choices
from driver.core.inventory import build_inventory
from driver.core.names import gpu_device_names, partition_name
from driver.core.pools import build_pool
from driver.core.snapshot import MigState
from tests.data.mig_boards import H100
from tests.unit.core.given import DRIVER, gpu, snapshot, uuid

FAULT = "gpu.tessera.dev/fault"


def slices_of(
    node: str,
    gpus: int = 1,
    profiles: tuple[str, ...] | None = None,
    geometry=H100,
    version: str = "v1",
    binding: Binding = Binding.SCHEDULER,
    **changes: Any,
) -> list[dict[str, Any]]:
    """All slices of `node`, whose GPUs can be partitioned."""
    mig = MigState(capable=True, enabled=True, switchable=True, geometry=geometry)
    facts = (gpu(n, **{"mig": mig, **changes}) for n in range(gpus))
    choices = Choices(profiles=profiles, binding=binding)
    pool = build_pool(
        build_inventory(snapshot(*facts), choices), driver=DRIVER, node=node, choices=choices
    )
    owner = NodeOwner(name=node, uid=f"uid-of-{node}")
    found = [
        encode_slice(s, pool=pool, generation=1, owner=owner, version=version) for s in pool.slices
    ]
    for each in found:
        each["metadata"] |= {"uid": f"uid-of-{each['metadata']['name']}", "resourceVersion": "1"}
    return found


def claim_of(name: str, node: str, *devices: str, **result: Any) -> dict[str, Any]:
    """`devices`: `0` is the full GPU 0, `0:3g.40gb@4` a partition of it."""
    results = [
        {
            "request": "r",
            "driver": DRIVER,
            "pool": f"{node}/tessera",
            "device": device_name(text),
            **result,
        }
        for text in devices
    ]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "ai", "uid": f"uid-of-{name}"},
        "status": {"allocation": {"devices": {"results": results}}} if results else {},
    }


def device_name(text: str) -> str:
    number, _, rest = text.partition(":")
    gpu_name = gpu_device_names([uuid(int(number))])[uuid(int(number))]
    profile, at, start = rest.partition("@")
    return partition_name(gpu_name, profile, int(start)) if at else gpu_name


def list_of(*objects: dict[str, Any], kind: str = "List") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "items": list(objects)}


def taint(slices: list[dict[str, Any]], effect: str, *devices: str) -> None:
    names = {device_name(d) for d in devices}
    for each in slices:
        for device in each["spec"].get("devices", ()):
            if device["name"] in names:
                device["taints"] = [{"key": FAULT, "value": "xid-79", "effect": effect}]
