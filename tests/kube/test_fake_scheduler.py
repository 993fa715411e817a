"""The stand-in scheduler: first fit in published order, and nothing twice."""

from typing import Any

import pytest

from hack.fakeapi import Cluster
from hack.fakeapi.scheduler import Scheduler, Unschedulable
from tests.fakes.apiserver import objects

Obj = dict[str, Any]
DRIVER = objects.DRIVER


def scheduler(*slices: Obj) -> Scheduler:
    cluster = Cluster()
    for obj in slices:
        cluster.create("resourceslices", obj)
    predicates = {
        DRIVER: lambda driver, _: driver == DRIVER,
        "mig": lambda _, device: "mig" in device["name"],
    }
    return Scheduler(cluster, predicates)


def wanted(s: Scheduler, name: str, *requests: Obj, **more: Any) -> list[str]:
    s._cluster.create("resourceclaims", objects.claim(name, *requests, **more))
    claim = s.allocate(name)
    return [r["device"] for r in claim["status"]["allocation"]["devices"]["results"]]


def gpus(*names: str, **more: Any) -> list[Obj]:
    return [objects.device(name, **more) for name in names]


def test_devices_go_in_order_of_slice_names_and_then_of_the_slice() -> None:
    s = scheduler(
        objects.resource_slice("b", devices=gpus("gpu-0"), count=2),
        objects.resource_slice("a", devices=gpus("gpu-2", "gpu-1"), count=2),
    )
    assert [wanted(s, f"c{i}") for i in range(3)] == [["gpu-2"], ["gpu-1"], ["gpu-0"]]
    with pytest.raises(Unschedulable, match="claim c3"):
        wanted(s, "c3")


def test_an_allocation_says_where_when_and_for_whom() -> None:
    s = scheduler(objects.resource_slice("a"))
    s._cluster.create("resourceclaims", objects.claim("c"))
    status = s.allocate("c", pod="pod-1")["status"]
    (term,) = status["allocation"]["nodeSelector"]["nodeSelectorTerms"]
    assert term == {
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node1"]}]
    }
    assert status["allocation"]["allocationTimestamp"].endswith("Z")
    assert [r["name"] for r in status["reservedFor"]] == ["pod-1"]
    assert [r["name"] for r in s.allocate("c", pod="pod-2")["status"]["reservedFor"]] == [
        "pod-1",
        "pod-2",
    ]


def test_a_released_device_is_given_again() -> None:
    s = scheduler(objects.resource_slice("a"))
    assert wanted(s, "c1") == ["gpu-0"]
    s.release("c1")
    assert wanted(s, "c2") == ["gpu-0"]


@pytest.mark.parametrize("why", ["incomplete", "an older generation"])
def test_a_pool_that_is_not_whole_gives_nothing(why: str) -> None:
    slices = [objects.resource_slice("a", count=2)]
    if why == "an older generation":
        slices = [
            objects.resource_slice("a", devices=gpus("old"), generation=1),
            objects.resource_slice("b", devices=[], generation=2),
        ]
    with pytest.raises(Unschedulable):
        wanted(scheduler(*slices), "c")


def test_a_taint_withholds_unless_it_is_tolerated() -> None:
    taint = {"key": "example.com/fault", "effect": "NoSchedule"}
    s = scheduler(objects.resource_slice("a", devices=gpus("gpu-0", taints=[taint])))
    with pytest.raises(Unschedulable):
        wanted(s, "c1")
    toleration = {"key": "example.com/fault", "operator": "Exists"}
    assert wanted(s, "c2", objects.request(tolerations=[toleration])) == ["gpu-0"]


def partitionable() -> Scheduler:
    def consumes(*places: int) -> list[Obj]:
        counters = {f"memory-slice-{i}": {"value": "1"} for i in places}
        return [{"counterSet": "gpu-0", "counters": counters}]

    return scheduler(
        objects.resource_slice(
            "00",
            count=2,
            counters=[
                {
                    "name": "gpu-0",
                    "counters": {f"memory-slice-{i}": {"value": "1"} for i in range(2)},
                }
            ],
        ),
        objects.resource_slice(
            "01",
            count=2,
            devices=[
                objects.device("mig-0", consumesCounters=consumes(0)),
                objects.device("mig-1", consumesCounters=consumes(1)),
                objects.device("gpu-0", consumesCounters=consumes(0, 1)),
            ],
        ),
    )


def test_a_gpu_and_its_partitions_exclude_one_another_by_counters() -> None:
    s = partitionable()
    assert wanted(s, "c1", objects.request(device_class="mig")) == ["mig-0"]
    assert wanted(s, "c2") == ["mig-1"]
    with pytest.raises(Unschedulable):
        wanted(s, "c3")
    s.release("c1")
    s.release("c2")
    two = objects.request(device_class="mig", count=2)
    assert wanted(s, "c4", two) == ["mig-0", "mig-1"]


def test_it_goes_back_where_the_first_choice_leaves_no_second() -> None:
    def at(board: str) -> Obj:
        return {"attributes": {"board": {"string": board}}}

    s = scheduler(
        objects.resource_slice(
            "a",
            devices=[
                objects.device("gpu-0", **at("x")),
                objects.device("gpu-1", **at("y")),
                objects.device("gpu-2", **at("y")),
            ],
        )
    )
    constraint = {"matchAttribute": f"{DRIVER}/board"}
    pair = [objects.request("one"), objects.request("two")]
    assert wanted(s, "c", *pair, constraints=[constraint]) == ["gpu-1", "gpu-2"]


def test_of_prioritised_alternatives_the_first_that_fits_is_taken() -> None:
    s = scheduler(objects.resource_slice("a"))
    request = {
        "name": "gpu",
        "firstAvailable": [
            {"name": "small", "deviceClassName": "mig"},
            {"name": "whole", "deviceClassName": DRIVER},
        ],
    }
    s._cluster.create("resourceclaims", objects.claim("c", request))
    (result,) = s.allocate("c")["status"]["allocation"]["devices"]["results"]
    assert (result["request"], result["device"]) == ("gpu/whole", "gpu-0")


def test_a_shared_device_is_given_until_its_capacity_is_used() -> None:
    device = objects.device(
        "gpu-0", allowMultipleAllocations=True, capacity={"memory": {"value": "10Gi"}}
    )
    s = scheduler(objects.resource_slice("a", devices=[device]))
    request = objects.request(capacity={"requests": {"memory": "4Gi"}})
    for name in ("c1", "c2"):
        assert wanted(s, name, request) == ["gpu-0"]
    with pytest.raises(Unschedulable):
        wanted(s, "c3", request)
    shares = [
        claim["status"]["allocation"]["devices"]["results"][0]["shareID"]
        for claim in s._cluster.list("resourceclaims")[0]
        if "status" in claim
    ]
    assert len(set(shares)) == 2


def test_configuration_of_the_class_comes_before_that_of_the_claim() -> None:
    s = scheduler(objects.resource_slice("a"))
    device_class = {
        "metadata": {"name": DRIVER},
        "spec": {"config": [{"opaque": {"driver": DRIVER, "parameters": {"from": "class"}}}]},
    }
    s._cluster.create("deviceclasses", device_class)
    config = [{"opaque": {"driver": DRIVER, "parameters": {"from": "claim"}}}]
    s._cluster.create("resourceclaims", objects.claim("c", config=config))
    entries = s.allocate("c")["status"]["allocation"]["devices"]["config"]
    assert [(e["source"], e.get("requests")) for e in entries] == [
        ("FromClass", ["gpu"]),
        ("FromClaim", None),
    ]
