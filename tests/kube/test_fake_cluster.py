"""What the stand-in does beyond the contract: the things that a test of ours relies on."""

from typing import Any

import pytest

from hack.fakeapi import ApiServer, Cluster, Refusal
from hack.fakeapi.quantity import canonical
from tests.fakes.apiserver import objects
from tests.fakes.apiserver.running import Connect

Obj = dict[str, Any]
ALLOCATED = {
    "devices": {
        "results": [
            {"request": "gpu", "driver": "one", "pool": "p", "device": "a"},
            {"request": "gpu", "driver": "two", "pool": "p", "device": "b"},
        ]
    }
}


def test_a_write_that_changes_nothing_tells_nobody() -> None:
    cluster = Cluster()
    stored = cluster.create("resourceslices", objects.resource_slice("s"))
    watcher = cluster.watch("resourceslices", since=cluster.history.version)
    assert cluster.update("resourceslices", stored) == stored
    assert watcher.next(0.0)[0] == []


def test_generated_names_are_unique() -> None:
    cluster = Cluster()
    obj = objects.resource_slice("")
    obj["metadata"] = {"generateName": "node1-gpu-"}
    names = {cluster.create("resourceslices", obj)["metadata"]["name"] for _ in range(20)}
    assert len(names) == 20
    assert all(name.startswith("node1-gpu-") for name in names)


def test_an_object_that_leaves_the_selection_is_told_as_deleted() -> None:
    cluster = Cluster()
    pod = {"metadata": {"name": "p", "namespace": "default"}, "spec": {"nodeName": "a"}}
    stored = cluster.create("pods", pod)
    at = {
        node: cluster.watch("pods", since=cluster.history.version, fields=f"spec.nodeName={node}")
        for node in "ab"
    }
    stored["spec"]["nodeName"] = "b"
    cluster.update("pods", stored)
    assert [kind for kind, _ in at["a"].next(0.0)[0]] == ["DELETED"]
    assert [kind for kind, _ in at["b"].next(0.0)[0]] == ["ADDED"]


def test_compaction_spares_the_watches_that_are_open() -> None:
    cluster = Cluster()
    start = cluster.history.version
    watcher = cluster.watch("resourceslices", since=start)
    cluster.create("resourceslices", objects.resource_slice("s"))
    cluster.compact()
    assert [kind for kind, _ in watcher.next(0.0)[0]] == ["ADDED"]
    with pytest.raises(Refusal, match="too old"):
        cluster.watch("resourceslices", since=start)


def test_the_answers_are_copies() -> None:
    cluster = Cluster()
    cluster.create("resourceslices", objects.resource_slice("s"))["spec"]["driver"] = "changed"
    cluster.list("resourceslices")[0][0]["spec"]["driver"] = "changed"
    assert cluster.get("resourceslices", "s")["spec"]["driver"] == objects.DRIVER


def allocated(cluster: Cluster) -> None:
    stored = cluster.create("resourceclaims", objects.claim("c"))
    stored["status"] = {"allocation": ALLOCATED}
    cluster.update("resourceclaims", stored, subresource="status")


def report(cluster: Cluster, driver: str, device: str, *conditions: str) -> list[Obj]:
    entry: Obj = {"driver": driver, "pool": "p", "device": device}
    if conditions:
        entry["conditions"] = [{"type": c, "status": "True"} for c in conditions]
    obj = {
        "metadata": {"name": "c", "namespace": "default"},
        "status": {"devices": [entry] if conditions else []},
    }
    stored = cluster.apply("resourceclaims", obj, manager=driver, subresource="status")
    return stored["status"].get("devices") or []


def test_drivers_report_their_own_devices_and_leave_the_others_alone() -> None:
    cluster = Cluster()
    allocated(cluster)
    report(cluster, "one", "a", "Ready", "Bound")
    report(cluster, "two", "b", "Ready")
    left = report(cluster, "one", "a", "Ready")
    assert {d["driver"]: [c["type"] for c in d["conditions"]] for d in left} == {
        "one": ["Ready"],
        "two": ["Ready"],
    }
    assert [d["driver"] for d in report(cluster, "one", "a")] == ["two"]


def test_a_device_that_is_not_allocated_cannot_be_reported() -> None:
    cluster = Cluster()
    allocated(cluster)
    with pytest.raises(Refusal, match="must be an allocated device"):
        report(cluster, "one", "z", "Ready")


def test_an_allocation_is_fixed_until_it_is_removed() -> None:
    cluster = Cluster()
    allocated(cluster)
    claim = cluster.get("resourceclaims", "c", "default")
    claim["status"]["allocation"] = {"devices": {"results": []}}
    with pytest.raises(Refusal, match="immutable"):
        cluster.update("resourceclaims", claim, subresource="status")
    claim["status"] = {}
    assert "status" not in cluster.update("resourceclaims", claim, subresource="status")


def test_requests_are_logged_and_writes_are_told_apart(fake: ApiServer, connect: Connect) -> None:
    api = connect(fake)
    api.server_version()
    assert fake.requests.writes() == []
    with pytest.raises(TimeoutError, match="seen: discover"):
        fake.requests.wait_for("create", "resourceslices", timeout=0.01)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("1024Mi", "1Gi"),
        ("1536Mi", "1536Mi"),
        ("81920Mi", "80Gi"),
        ("1000", "1k"),
        ("1", "1"),
        ("0", "0"),
        ("500m", "500m"),
        ("1.5", "1500m"),
        ("0.5Gi", "512Mi"),
    ],
)
def test_quantities_are_stored_in_their_shortest_form(given: str, stored: str) -> None:
    assert canonical(given) == stored
