"""The smallest valid objects; each call gives a new one."""

from __future__ import annotations

from typing import Any

Obj = dict[str, Any]
DRIVER = "gpu.tessera.dev"


def node(name: str) -> Obj:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def resource_slice(
    name: str,
    *,
    node: str = "node1",
    driver: str = DRIVER,
    devices: list[Obj] | None = None,
    counters: list[Obj] | None = None,
    pool: str = "",
    generation: int = 1,
    count: int = 1,
) -> Obj:
    spec: Obj = {
        "driver": driver,
        "nodeName": node,
        "pool": {
            "name": pool or f"{node}/tessera",
            "generation": generation,
            "resourceSliceCount": count,
        },
    }
    if counters is not None:
        spec["sharedCounters"] = counters
    else:
        spec["devices"] = [device("gpu-0")] if devices is None else devices
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": spec,
    }


def device(name: str, **more: Any) -> Obj:
    return {"name": name, **more}


def claim(name: str, *requests: Obj, namespace: str = "default", **more: Any) -> Obj:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"devices": {"requests": list(requests) or [request()], **more}},
    }


def request(name: str = "gpu", device_class: str = DRIVER, **more: Any) -> Obj:
    return {"name": name, "exactly": {"deviceClassName": device_class, **more}}
