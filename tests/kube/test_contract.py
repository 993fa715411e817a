"""What the client promises, on the fake server and on a real one (TESSERA_TEST_KUBECONFIG)."""

from itertools import islice
from queue import SimpleQueue
from threading import Event
from typing import Any

import pytest

from driver.core.errors import KubeConflict, KubeGone, KubeInvalid, KubeNotFound
from driver.kube.events import Recorder
from driver.kube.reflector import Reflector
from driver.kube.versions import discover
from driver.kube.watching import Query
from driver.ports.events import Reason, Regarding
from driver.ports.kube import (
    Added,
    Bookmark,
    Change,
    Deleted,
    JsonObject,
    KubeApi,
    Modified,
    ServerVersion,
)
from driver.ports.resources import EVENTS, NODES, resource_claims, resource_slices
from tests.fakes.apiserver import objects
from tests.fakes.apiserver.running import Run
from tests.fakes.apiserver.servers import Bench

SLICES = resource_slices()
CLAIMS = resource_claims()


def driver_of(server: Bench) -> str:
    return f"{server.prefix}.example.com"


def make_slice(server: Bench, suffix: str, **more: Any) -> JsonObject:
    obj = objects.resource_slice(server.name(suffix), driver=driver_of(server), **more)
    return server.create(SLICES, obj)


def test_what_is_created_can_be_read_replaced_and_deleted(server: Bench) -> None:
    api: KubeApi = server.api
    stored = make_slice(server, "a")
    stored["metadata"]["labels"] = {"seen": "yes"}
    replaced = api.replace(SLICES, stored)
    assert api.get(SLICES, server.name("a")) == replaced
    assert replaced["metadata"]["labels"] == {"seen": "yes"}
    api.delete(SLICES, server.name("a"))
    with pytest.raises(KubeNotFound) as caught:
        api.get(SLICES, server.name("a"))
    assert caught.value.status == 404
    assert f"get resourceslices {server.name('a')}" in str(caught.value)


def test_a_name_that_is_taken_is_a_conflict(server: Bench) -> None:
    make_slice(server, "a")
    with pytest.raises(KubeConflict, match="AlreadyExists"):
        make_slice(server, "a")


def test_a_stale_version_is_a_conflict_and_changes_nothing(server: Bench) -> None:
    stale = make_slice(server, "a")
    fresh = server.api.replace(SLICES, {**stale, "spec": {**stale["spec"], "devices": []}})
    with pytest.raises(KubeConflict, match="Conflict"):
        server.api.replace(SLICES, stale)
    assert server.api.get(SLICES, server.name("a")) == fresh


def test_delete_takes_only_the_object_that_was_meant(server: Bench) -> None:
    stored = make_slice(server, "a")
    with pytest.raises(KubeConflict):
        server.api.delete(SLICES, server.name("a"), uid="00000000-0000-4000-8000-000000000000")
    with pytest.raises(KubeConflict):
        server.api.delete(SLICES, server.name("a"), version="1")
    metadata = stored["metadata"]
    server.api.delete(
        SLICES, server.name("a"), uid=metadata["uid"], version=metadata["resourceVersion"]
    )


def test_an_object_that_breaks_the_api_is_refused_with_the_field(server: Bench) -> None:
    with pytest.raises(KubeInvalid, match=r"devices\[0\].name") as caught:
        make_slice(server, "a", devices=[objects.device("mig-1g.10gb")])
    assert caught.value.status == 422


def test_a_dry_run_answers_and_stores_nothing(server: Bench) -> None:
    obj = objects.resource_slice(server.name("a"), driver=driver_of(server))
    assert server.api.create(SLICES, obj, dry_run=True)["spec"]["driver"] == driver_of(server)
    with pytest.raises(KubeNotFound):
        server.api.get(SLICES, server.name("a"))


def test_a_list_has_all_pages_and_only_what_was_selected(server: Bench) -> None:
    for i in range(5):
        make_slice(server, f"s{i}", node=f"node{i % 2}")
    paged = server.client(page=2)
    driver = f"spec.driver={driver_of(server)}"
    everything = paged.list(SLICES, fields=driver)
    assert [o["metadata"]["name"] for o in everything.items] == [
        server.name(f"s{i}") for i in range(5)
    ]
    assert {o["kind"] for o in everything.items} == {"ResourceSlice"}
    assert len(paged.list(SLICES, fields=f"{driver},spec.nodeName=node1").items) == 2


def test_a_selector_that_the_server_does_not_know_is_refused(server: Bench) -> None:
    with pytest.raises(KubeInvalid, match="field label not supported"):
        server.api.list(SLICES, fields="spec.color=red")


def test_the_server_stores_quantities_and_taints_in_its_own_form(server: Bench) -> None:
    taint = {"key": "example.com/fault", "effect": "NoSchedule"}
    device = objects.device("gpu-0", capacity={"memory": {"value": "1024Mi"}}, taints=[taint])
    (stored,) = make_slice(server, "a", devices=[device])["spec"]["devices"]
    assert stored["capacity"] == {"memory": {"value": "1Gi"}}
    assert stored["taints"][0].pop("timeAdded").endswith("Z")
    assert stored["taints"] == [taint]


def test_a_merge_patch_changes_what_it_names_and_removes_what_is_none(server: Bench) -> None:
    claim = objects.claim(server.name("c"))
    claim["metadata"]["labels"] = {"a": "1", "b": "2"}
    server.create(CLAIMS, claim)
    patched = server.api.patch(
        CLAIMS,
        server.name("c"),
        {"metadata": {"labels": {"a": None, "c": "3"}}},
        namespace="default",
    )
    assert patched["metadata"]["labels"] == {"b": "2", "c": "3"}


def test_apply_owns_its_fields_and_gives_up_what_it_leaves_out(server: Bench) -> None:
    server.create(NODES, objects.node(server.name("n")))

    def labels(manager: str, **wanted: str) -> dict[str, str]:
        obj = {"metadata": {"name": server.name("n"), "labels": wanted}}
        return dict(server.api.apply(NODES, obj, manager=manager)["metadata"]["labels"])

    labels("one", a="1", b="1")
    both = labels("two", c="1")
    assert {"a", "b", "c"} <= both.keys()
    left = labels("one", a="1")
    assert {"a", "c"} <= left.keys()
    assert "b" not in left


def test_apply_without_force_does_not_take_what_another_owns(server: Bench) -> None:
    server.create(NODES, objects.node(server.name("n")))
    obj = {"metadata": {"name": server.name("n"), "labels": {"a": "1"}}}
    server.api.apply(NODES, obj, manager="one")
    obj["metadata"]["labels"] = {"a": "2"}
    with pytest.raises(KubeConflict, match="one"):
        server.api.apply(NODES, obj, manager="two", force=False)


def test_conditions_of_two_writers_stand_side_by_side(server: Bench) -> None:
    server.create(NODES, objects.node(server.name("n")))

    def report(kind: str, status: str) -> None:
        condition = {"type": kind, "status": status, "reason": "Test"}
        obj = {"metadata": {"name": server.name("n")}, "status": {"conditions": [condition]}}
        server.api.apply_status(NODES, obj, manager=kind.lower())

    report("GPUReady", "True")
    report("Other", "True")
    report("GPUReady", "False")
    conditions = server.api.get(NODES, server.name("n"))["status"]["conditions"]
    mine = {c["type"]: c["status"] for c in conditions if c["type"] in {"GPUReady", "Other"}}
    assert mine == {"GPUReady": "False", "Other": "True"}


def test_drivers_report_the_devices_of_a_claim_side_by_side(server: Bench) -> None:
    server.create(CLAIMS, objects.claim(server.name("c"), objects.request(count=2)))
    results = [
        {"request": "gpu", "driver": driver, "pool": "p", "device": "gpu-0"}
        for driver in ("one.example.com", "two.example.com")
    ]
    server.api.patch_status(
        CLAIMS,
        server.name("c"),
        {"status": {"allocation": {"devices": {"results": results}}}},
        namespace="default",
    )

    def report(driver: str, data: Any) -> list[JsonObject]:
        entry = {"driver": driver, "pool": "p", "device": "gpu-0", "data": data}
        obj = {
            "metadata": {"name": server.name("c"), "namespace": "default"},
            "status": {"devices": [entry]},
        }
        return list(server.api.apply_status(CLAIMS, obj, manager=driver)["status"]["devices"])

    report("one.example.com", {"uuid": "MIG-1"})
    report("two.example.com", {"uuid": "MIG-2"})
    reported = report("one.example.com", {"uuid": "MIG-3"})
    assert {d["driver"]: d["data"]["uuid"] for d in reported} == {
        "one.example.com": "MIG-3",
        "two.example.com": "MIG-2",
    }


def test_a_status_patch_leaves_the_spec_alone(server: Bench) -> None:
    server.create(NODES, objects.node(server.name("n")))
    patch = {"spec": {"unschedulable": True}, "status": {"phase": "Running"}}
    patched = server.api.patch_status(NODES, server.name("n"), patch)
    assert patched["status"]["phase"] == "Running"
    assert not (patched.get("spec") or {}).get("unschedulable")


def test_an_event_about_a_node_is_stored(server: Bench) -> None:
    server.create(NODES, objects.node(server.name("n")))
    about = Regarding(api_version="v1", kind="Node", name=server.name("n"), uid="u")
    recorder = Recorder(
        server.api,
        controller="example.com/plugin",
        instance="node1",
        dropped=lambda: pytest.fail("the event was not stored"),
    )
    recorder.event(about, Reason.DEVICE_WITHHELD, "gpu-0: Xid 79 since 10:00", warning=True)
    stop = Event()
    stop.set()
    recorder.run(stop)
    found = [
        event
        for event in server.api.list(EVENTS, namespace="default").items
        if event["regarding"]["name"] == server.name("n")
    ]
    assert [(e["reason"], e["type"], e["note"]) for e in found] == [
        ("DeviceWithheld", "Warning", "gpu-0: Xid 79 since 10:00")
    ]
    server.made += [(EVENTS, e["metadata"]["name"], "default") for e in found]


def test_a_watch_tells_what_happened_since_the_list_in_order(server: Bench) -> None:
    driver = f"spec.driver={driver_of(server)}"
    listed = server.api.list(SLICES, fields=driver)
    stored = make_slice(server, "a")
    stored["spec"]["devices"] = []
    server.api.replace(SLICES, stored)
    server.api.delete(SLICES, server.name("a"))
    with server.api.watch(
        SLICES, since=listed.version, lasting=20, silence=20, fields=driver
    ) as stream:
        told = (event for event in stream if not isinstance(event, Bookmark))
        seen = list(islice(told, 3))
    assert [type(event) for event in seen] == [Added, Modified, Deleted]
    versions = [int(event.obj["metadata"]["resourceVersion"]) for event in seen]
    assert versions == sorted(set(versions))


def test_a_watch_from_a_forgotten_version_is_gone(server: Bench) -> None:
    make_slice(server, "a")
    if server.cluster is not None:
        server.cluster.compact()
    with server.api.watch(SLICES, since="1", lasting=2, silence=10) as stream:
        try:
            remembered = list(stream)
        except KubeGone as error:
            status = error.status
        else:
            assert server.cluster is None
            assert remembered
            pytest.skip("this server is so young that it remembers its first version")
    assert status == 410


def test_a_reflector_follows_the_server(server: Bench, run: Run) -> None:
    make_slice(server, "a")
    query = Query(resource=SLICES, fields=f"spec.driver={driver_of(server)}")
    reflector = Reflector(server.api, query)
    changes: SimpleQueue[Change] = SimpleQueue()
    reflector.subscribe(changes.put)
    run(reflector)
    assert changes.get(timeout=10).key == ("", server.name("a"))
    assert reflector.wait_synced(10)
    stored = make_slice(server, "b")
    assert changes.get(timeout=10).new == stored
    server.api.delete(SLICES, server.name("a"))
    gone = changes.get(timeout=10)
    assert (gone.key, gone.new) == (("", server.name("a")), None)
    assert [o["metadata"]["name"] for o in reflector.snapshot()] == [server.name("b")]


def test_discovery_finds_the_version_and_the_api(server: Bench) -> None:
    facts = discover(server.api)
    assert facts.version >= ServerVersion(major=1, minor=34)
    assert facts.resource_version == "v1"
    assert server.api.served_versions("") == ("v1",)
    assert server.api.served_versions("no.such.group") == ()
