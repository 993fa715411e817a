"""Each limit of a slice, just inside and just outside, on the stand-in and on a real server.

Nothing is stored: every object is a dry run.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from driver.core.errors import KubeInvalid
from driver.ports.resources import resource_slices
from hack.fakeapi import Cluster, Refusal, Settings
from tests.fakes.apiserver import objects
from tests.fakes.apiserver.servers import Bench, bench

Obj = dict[str, Any]
SLICES = resource_slices()
COUNTERS = {"memory-slice-0": {"value": "1"}}
TAINT = {"key": "example.com/a", "effect": "NoSchedule"}


def devices(count: int, **more: Any) -> list[Obj]:
    return [objects.device(f"gpu-{i}", **more) for i in range(count)]


def consumes(*sets: str) -> list[Obj]:
    return [{"counterSet": s, "counters": COUNTERS} for s in sets]


def counter_sets(count: int, counters: Obj | None = None) -> list[Obj]:
    return [
        {"name": f"set-{i}", "counters": COUNTERS if counters is None else counters}
        for i in range(count)
    ]


def attribute(**value: Any) -> Obj:
    return objects.resource_slice("s", devices=devices(1, attributes={"a": value}))


def spec(**changes: Any) -> Obj:
    obj = objects.resource_slice("s")
    obj["spec"] |= changes
    return obj


INSIDE = {
    "128 devices": objects.resource_slice("s", devices=devices(128)),
    "64 devices with taints": objects.resource_slice("s", devices=devices(64, taints=[TAINT])),
    "no devices": objects.resource_slice("s", devices=[]),
    "8 counter sets": objects.resource_slice("s", counters=counter_sets(8)),
    "two consumed sets": objects.resource_slice(
        "s", devices=devices(1, consumesCounters=consumes("a", "b"))
    ),
    "64 bytes": attribute(string="x" * 64),
    "a semantic version": attribute(version="535.104.5"),
    "a qualified attribute": objects.resource_slice(
        "s", devices=devices(1, attributes={"resource.kubernetes.io/pcieRoot": {"string": "x"}})
    ),
    "a pool name of two parts": objects.resource_slice("s", pool="node1/tessera"),
    "16 taints": objects.resource_slice(
        "s", devices=devices(1, taints=[{**TAINT, "key": f"k{i}"} for i in range(16)])
    ),
}

OUTSIDE = {
    "129 devices": (objects.resource_slice("s", devices=devices(129)), "at most 128"),
    "65 with one taint": (
        objects.resource_slice("s", devices=[*devices(64), objects.device("t", taints=[TAINT])]),
        "at most 64",
    ),
    "65 that consume": (
        objects.resource_slice("s", devices=devices(65, consumesCounters=consumes("a"))),
        "at most 64",
    ),
    "both lists": (spec(sharedCounters=counter_sets(1)), "exclude one another"),
    "an empty list beside counters": (
        spec(devices=[], sharedCounters=counter_sets(1)),
        "exclude one another",
    ),
    "9 counter sets": (objects.resource_slice("s", counters=counter_sets(9)), "at most 8"),
    "an empty counter set": (
        objects.resource_slice("s", counters=counter_sets(1, {})),
        "at least one counter",
    ),
    "33 counters": (
        objects.resource_slice(
            "s", counters=counter_sets(1, {f"c{i}": {"value": "1"} for i in range(33)})
        ),
        "at most 32",
    ),
    "three consumed sets": (
        objects.resource_slice("s", devices=devices(1, consumesCounters=consumes("a", "b", "c"))),
        "at most 2",
    ),
    "the same set twice": (
        objects.resource_slice("s", devices=devices(1, consumesCounters=consumes("a", "a"))),
        "distinct",
    ),
    "a name with a dot": (
        objects.resource_slice("s", devices=[objects.device("mig-1g.10gb")]),
        "DNS label",
    ),
    "a name twice": (objects.resource_slice("s", devices=devices(1) * 2), "Duplicate"),
    "65 bytes": (attribute(string="ä" * 33), "at most 64 bytes"),
    "a leading zero": (attribute(version="535.104.05"), "semantic version"),
    "an int as text": (attribute(int="4"), "type int"),
    "two values": (attribute(int=4, string="4"), "exactly one value"),
    "33 attributes": (
        objects.resource_slice(
            "s", devices=devices(1, attributes={f"a{i}": {"int": i} for i in range(33)})
        ),
        "at most 32",
    ),
    "no node": (spec(nodeName=""), "exactly one of"),
    "two node selections": (spec(allNodes=True), "exactly one of"),
    "a false selection": (spec(allNodes=False), "unset or set to true"),
    "no slices": (objects.resource_slice("s", count=0), "greater than zero"),
    "a capital in the pool": (objects.resource_slice("s", pool="Node1"), "pool.name"),
    "an unknown effect": (
        objects.resource_slice("s", devices=devices(1, taints=[{**TAINT, "effect": "Maybe"}])),
        "effect",
    ),
    "17 taints": (
        objects.resource_slice(
            "s", devices=devices(1, taints=[{**TAINT, "key": f"k{i}"} for i in range(17)])
        ),
        "at most 16",
    ),
    "a policy without sharing": (
        objects.resource_slice(
            "s",
            devices=devices(1, capacity={"m": {"value": "1", "requestPolicy": {"default": "1"}}}),
        ),
        "allowMultipleAllocations",
    ),
    "no quantity": (
        objects.resource_slice("s", devices=devices(1, capacity={"m": {"value": "1 Gi"}})),
        "quantities must match",
    ),
    "a capital in the name": (objects.resource_slice("Slice"), "metadata.name"),
}


@pytest.fixture(scope="module", params=["fake", "real"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    with bench(request.param, tmp_path_factory.mktemp("server")) as opened:
        yield opened


@pytest.mark.parametrize("obj", INSIDE.values(), ids=INSIDE)
def test_what_is_inside_the_limits_is_stored(obj: Obj, server: Bench) -> None:
    assert server.api.create(SLICES, obj, dry_run=True)["metadata"]["uid"]


@pytest.mark.parametrize(("obj", "why"), OUTSIDE.values(), ids=OUTSIDE)
def test_what_is_outside_is_refused_with_the_reason(obj: Obj, why: str, server: Bench) -> None:
    with pytest.raises(KubeInvalid) as caught:
        server.api.create(SLICES, obj, dry_run=True)
    assert caught.value.status in {400, 422}
    if server.cluster is not None:  # the wording of the real one is not ours to fix
        assert why in str(caught.value)


@pytest.mark.parametrize("field", ["driver", "nodeName", "pool.name"])
def test_the_identity_of_a_slice_never_changes(field: str) -> None:
    cluster = Cluster()
    stored = cluster.create("resourceslices", objects.resource_slice("s"))
    target = stored["spec"]["pool"] if field == "pool.name" else stored["spec"]
    target[field.removeprefix("pool.")] = "other.example.com"
    with pytest.raises(Refusal, match="immutable"):
        cluster.update("resourceslices", stored)


def test_before_1_35_counters_stand_beside_the_devices_that_consume_them() -> None:
    obj = spec(devices=devices(100, consumesCounters=consumes("set-0")))
    obj["spec"]["sharedCounters"] = counter_sets(1)
    gates = {"DRAPartitionableDevices": True}
    old = Cluster(Settings(git_version="v1.34.2", gates=gates))
    assert len(old.create("resourceslices", obj)["spec"]["sharedCounters"]) == 1


HEAVY = objects.device(
    "gpu-0",
    taints=[TAINT],
    consumesCounters=consumes("set-0"),
    allowMultipleAllocations=True,
    bindsToNode=True,
)
DROPPED = {
    "DRADeviceTaints": "taints",
    "DRAPartitionableDevices": "consumesCounters",
    "DRAConsumableCapacity": "allowMultipleAllocations",
    "DRADeviceBindingConditions": "bindsToNode",
}


@pytest.mark.parametrize(("gate", "field"), DROPPED.items())
def test_a_gate_that_is_off_drops_its_field_without_a_word(gate: str, field: str) -> None:
    cluster = Cluster(Settings(gates={gate: False}))
    stored = cluster.create("resourceslices", objects.resource_slice("s", devices=[HEAVY]))
    assert set(HEAVY) - set(stored["spec"]["devices"][0]) == {field}


@pytest.mark.parametrize(("minor", "kept"), [(34, set()), (36, {"taints", "consumesCounters"})])
def test_gates_follow_the_version(minor: int, kept: set[str]) -> None:
    cluster = Cluster(Settings(git_version=f"v1.{minor}.2"))
    stored = cluster.create("resourceslices", objects.resource_slice("s", devices=[HEAVY]))
    assert set(stored["spec"]["devices"][0]) & {"taints", "consumesCounters"} == kept


def test_a_field_that_is_stored_survives_its_gate() -> None:
    cluster = Cluster()
    stored = cluster.create("resourceslices", objects.resource_slice("s", devices=[HEAVY]))
    cluster.settings = Settings(gates={"DRADeviceTaints": False})
    stored["metadata"]["labels"] = {"touched": "yes"}
    assert cluster.update("resourceslices", stored)["spec"]["devices"][0]["taints"]
