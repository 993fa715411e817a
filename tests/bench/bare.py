"""Nodes, claims and pods on a control plane without a kubelet, as few words as benchmarks need.

Why it exists: a Node object without a kubelet must be made ready by hand, and a pod that only gets
bound still needs a container. Waiting is by watch, from the version of a list: nothing is missed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from driver.kube.client import Client
from driver.kube.login import login
from driver.kube.throttle import TokenBucket
from driver.ports.kube import Bookmark, Resource
from driver.ports.resources import NODES, PODS, device_classes, resource_claims
from hack.controlplane import ControlPlane

NAMESPACE: Final = "default"
WHOLE: Final = "full"
CLAIMS: Final = resource_claims()
CLASSES: Final = device_classes()
SERVICE_ACCOUNTS: Final = Resource(
    group="", version="v1", plural="serviceaccounts", kind="ServiceAccount", namespaced=True
)
SILENCE: Final = 60.0
"""Seconds; longer than the server's bookmarks are apart."""

Obj = dict[str, Any]


def connect(plane: ControlPlane) -> Client:
    """Returns when pods can be created: the namespace has its service account."""
    client = Client(
        login(kubeconfig=str(plane.kubeconfig)),
        user_agent="tessera-bench",
        throttle=TokenBucket(rate=1e6, burst=10**6),
    )
    await_objects(
        client,
        SERVICE_ACCOUNTS,
        lambda found: any(o["metadata"]["name"] == "default" for o in found),
        timeout=60,
    )
    return client


def await_objects(
    client: Client, resource: Resource, enough: Callable[[list[Obj]], bool], *, timeout: float
) -> list[Obj]:
    """The objects of the namespace (or all), as soon as they are `enough`."""
    for found in states(client, resource, timeout=timeout):
        if enough(found):
            return found
    raise TimeoutError(f"{resource.plural} were not as awaited within {timeout:.0f} s")


def states(client: Client, resource: Resource, *, timeout: float) -> Iterator[list[Obj]]:
    """The objects now, and after each event, until `timeout`."""
    namespace = NAMESPACE if resource.namespaced else ""
    listing = client.list(resource, namespace=namespace)
    found = {o["metadata"]["name"]: o for o in listing.items}
    yield [*found.values()]
    since, deadline = listing.version, time.monotonic() + timeout
    while (left := deadline - time.monotonic()) > 0:
        with client.watch(
            resource, since=since, lasting=left, silence=SILENCE, namespace=namespace
        ) as stream:
            for event in stream:
                if isinstance(event, Bookmark):
                    since = event.version
                    continue
                since = event.obj["metadata"]["resourceVersion"]
                name = event.obj["metadata"]["name"]
                if type(event).__name__ == "Deleted":
                    found.pop(name, None)
                else:
                    found[name] = event.obj
                yield [*found.values()]


def node(name: str) -> Obj:
    """Ready, and with room for any number of pods that ask for nothing."""
    room = {"cpu": "224", "memory": "2Ti", "pods": "500"}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Benchmark"}],
        },
    }


def class_name(kind: str) -> str:
    return f"mig-{kind}" if kind != WHOLE else "gpu"


def device_class(driver: str, kind: str) -> Obj:
    """As the chart writes it. `kind`: a profile, or `WHOLE`."""
    own = f"device.attributes['{driver}']"
    wanted = "gpu" if kind == WHOLE else "mig"
    expression = f"device.driver == '{driver}' && {own}.type == '{wanted}'"
    if kind != WHOLE:
        expression += f" && {own}.profile == '{kind}'"
    return {
        "metadata": {"name": class_name(kind)},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def claim(name: str, kind: str) -> Obj:
    request = {"name": "gpu", "exactly": {"deviceClassName": class_name(kind)}}
    return {
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"devices": {"requests": [request]}},
    }


def pod(name: str) -> Obj:
    """With the claim of the same name."""
    return {
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
            "containers": [
                {"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}
            ],
        },
    }


def make_nodes(client: Client, names: list[str]) -> dict[str, str]:
    """The UID of each."""
    return {name: client.create(NODES, node(name))["metadata"]["uid"] for name in names}


def make_classes(client: Client, driver: str, kinds: list[str]) -> None:
    for kind in kinds:
        client.create(CLASSES, device_class(driver, kind))


def hold(client: Client, name: str, kind: str, *, driver: str, pool: str, device: str) -> None:
    """A claim that has got this device, as if the scheduler had chosen it."""
    client.create(CLAIMS, claim(name, kind))
    result = {"request": "gpu", "driver": driver, "pool": pool, "device": device}
    client.patch_status(
        CLAIMS,
        name,
        {"status": {"allocation": {"devices": {"results": [result]}}}},
        namespace=NAMESPACE,
    )


def bound(pods: list[Obj]) -> int:
    return sum(1 for p in pods if p["spec"].get("nodeName"))


def make_pods(client: Client, names: list[str]) -> None:
    for name in names:
        client.create(PODS, pod(name))
