"""What is sent to the server, to the byte, and what is made of its answers."""

from dataclasses import replace
from typing import Any

import pytest

from api.resource.codec import DeviceEncoder, NodeOwner, decode_stored, encode_slice, keeps
from api.resource.types import (
    Consumption,
    CounterSet,
    Device,
    Flag,
    Number,
    Pool,
    Slice,
    Taint,
    TaintEffect,
    Text,
    Version,
)

OWNER = NodeOwner(name="n1", uid="node-uid")
FAULT = Taint(key="gpu.tessera.dev/fault", value="xid", effect=TaintEffect.NO_SCHEDULE)
BARE = Taint(key="drained", value="", effect=TaintEffect.NONE)
DEVICE = Device(
    name="gpu-0",
    attributes=(
        ("type", Text("gpu")),
        ("driverVersion", Version("580.95.5")),
        ("numa", Number(1)),
        ("ecc", Flag(True)),
    ),
    capacity=(("memory", 80 * 2**30),),
    consumes=(Consumption(counter_set="set-0", counters=(("memory-slice-0", 1),)),),
    taints=(FAULT, BARE),
)
GPUS = Slice(name="s-01", devices=(DEVICE,))
SETS = Slice(name="s-00", counter_sets=(CounterSet(name="set-0", counters=(("a", 1), ("b", 2))),))
POOL = Pool(driver="gpu.tessera.dev", node="n1", name="n1/tessera", slices=(SETS, GPUS))

BODY = {
    "attributes": {
        "type": {"string": "gpu"},
        "driverVersion": {"version": "580.95.5"},
        "numa": {"int": 1},
        "ecc": {"bool": True},
    },
    "capacity": {"memory": {"value": "80Gi"}},
    "consumesCounters": [{"counterSet": "set-0", "counters": {"memory-slice-0": {"value": "1"}}}],
    "taints": [
        {"key": "gpu.tessera.dev/fault", "value": "xid", "effect": "NoSchedule"},
        {"key": "drained", "effect": "None"},
    ],
}


def encode(wanted: Slice, version: str = "v1", **more: Any) -> dict[str, Any]:
    return encode_slice(wanted, pool=POOL, generation=3, owner=OWNER, version=version, **more)


def stored(wanted: Slice = GPUS, version: str = "v1", **metadata: Any) -> dict[str, Any]:
    obj = encode(wanted, version)
    obj["metadata"] |= {"uid": "slice-uid", "resourceVersion": "7", **metadata}
    return obj


@pytest.mark.parametrize(
    ("version", "device"),
    [
        ("v1", {"name": "gpu-0", **BODY}),
        ("v1beta2", {"name": "gpu-0", **BODY}),
        ("v1beta1", {"name": "gpu-0", "basic": BODY}),
    ],
)
def test_a_slice_is_written_in_each_served_version(version, device):
    assert encode(GPUS, version) == {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceSlice",
        "metadata": {
            "name": "s-01",
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "name": "n1",
                    "uid": "node-uid",
                    "controller": True,
                }
            ],
        },
        "spec": {
            "driver": "gpu.tessera.dev",
            "nodeName": "n1",
            "pool": {"name": "n1/tessera", "generation": 3, "resourceSliceCount": 2},
            "devices": [device],
        },
    }


def test_a_list_that_is_empty_is_not_sent_at_all():
    assert "devices" not in encode(SETS)["spec"]
    assert encode(SETS)["spec"]["sharedCounters"] == [
        {"name": "set-0", "counters": {"a": {"value": "1"}, "b": {"value": "2"}}}
    ]
    assert encode(Slice(name="s"))["spec"].keys() == {"driver", "nodeName", "pool"}
    assert encode(Slice(name="s", devices=(Device(name="d"),)))["spec"]["devices"] == [
        {"name": "d"}
    ]


def test_a_stored_slice_is_read_with_all_that_decides_about_it():
    got = decode_stored(stored())
    assert (got.name, got.uid, got.resource_version) == ("s-01", "slice-uid", "7")
    assert (got.driver, got.pool, got.node) == ("gpu.tessera.dev", "n1/tessera", "n1")
    assert (got.generation, got.count, got.owner, got.content) == (3, 2, OWNER, GPUS)


def test_stored_counters_are_read_by_value():
    obj = stored(SETS)
    obj["spec"]["sharedCounters"][0]["counters"]["a"] = {"value": "1000m"}
    assert decode_stored(obj).content == SETS


def test_null_and_empty_lists_read_as_nothing():
    obj = stored(Slice(name="s"))
    obj["spec"] |= {"devices": None, "sharedCounters": []}
    assert decode_stored(obj).content == Slice(name="s")


def test_only_a_node_counts_as_the_owner():
    pod = {"kind": "Pod", "name": "p", "uid": "u"}
    assert decode_stored(stored(ownerReferences=[pod])).owner is None
    node = {"kind": "Node", "name": "n1", "uid": "node-uid"}
    assert decode_stored(stored(ownerReferences=[pod, node])).owner == OWNER


def _device(**more: Any) -> dict[str, Any]:
    return {"devices": [{"name": "d", **more}]}


@pytest.mark.parametrize(
    "spec",
    [
        {"perDeviceNodeSelection": True},
        {"sharedCounters": [{"name": "s", "counters": {}, "new": 1}]},
        _device(allowMultipleAllocations=True),
        _device(basic={"new": 1}),
        _device(basic={}, allowMultipleAllocations=True),
        _device(attributes={"a": {"strings": ["x"]}}),
        _device(attributes={"a": {"string": "x", "int": 1}}),
        _device(attributes={"a": {}}),
        _device(capacity={"memory": {"value": "1", "requestPolicy": {}}}),
        _device(capacity={"memory": {"value": "much"}}),
        _device(consumesCounters=[{"counterSet": "s"}]),
        _device(consumesCounters=[{"counterSet": "s", "counters": {}, "new": 1}]),
        _device(taints=[{"key": "k", "effect": "NoBreathing", "timeAdded": "T"}]),
        _device(taints=[{"key": "k", "effect": "None", "timeAdded": "T", "new": 1}]),
    ],
)
def test_content_that_we_never_write_is_nothing_that_could_be_wanted(spec):
    obj = stored()
    obj["spec"] |= spec
    assert decode_stored(obj).content is None


@pytest.mark.parametrize("missing", ["metadata", "spec"])
def test_what_is_no_slice_at_all_is_an_error(missing):
    obj = stored()
    del obj[missing]
    with pytest.raises(KeyError, match=missing):
        decode_stored(obj)


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_rewrite_keeps_the_time_of_each_taint_that_stays(version):
    obj = stored(version=version)
    device = obj["spec"]["devices"][0]
    device.get("basic", device)["taints"][0]["timeAdded"] = "2026-01-02T03:04:05Z"
    over = decode_stored(obj)
    assert over.content == GPUS
    worse = Taint(key=FAULT.key, value="ecc", effect=FAULT.effect)
    device = encode(
        Slice(name="s-01", devices=(Device(name="gpu-0", taints=(worse, FAULT)),)), over=over
    )["spec"]["devices"][0]
    assert device["taints"] == [
        {"key": FAULT.key, "value": "ecc", "effect": "NoSchedule"},
        {
            "key": FAULT.key,
            "value": "xid",
            "effect": "NoSchedule",
            "timeAdded": "2026-01-02T03:04:05Z",
        },
    ]


def test_a_rewrite_keeps_what_others_put_into_the_metadata_and_corrects_the_owner():
    over = decode_stored(
        stored(
            labels={"team": "a"},
            annotations={"note": "b"},
            generation=4,
            managedFields=[{"manager": "x"}],
            ownerReferences=[{"kind": "Node", "name": "n1", "uid": "old"}],
        )
    )
    metadata = encode(GPUS, over=over)["metadata"]
    assert metadata.pop("ownerReferences")[0]["uid"] == "node-uid"
    assert metadata == {
        "name": "s-01",
        "uid": "slice-uid",
        "resourceVersion": "7",
        "labels": {"team": "a"},
        "annotations": {"note": "b"},
    }


def test_a_device_that_comes_again_is_encoded_once_and_reads_the_same_with_other_taints_too():
    encoder = DeviceEncoder()
    calm, sick = (
        Slice(name="s-01", devices=(replace(DEVICE, taints=taints),)) for taints in ((), (FAULT,))
    )
    first, again, withheld = (encode(s, encoder=encoder) for s in (calm, calm, sick))
    assert first == again == encode(calm)
    assert withheld == encode(sick)
    bodies = [each["spec"]["devices"][0]["attributes"] for each in (first, again, withheld)]
    assert bodies[0] is bodies[1] is bodies[2]


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_times_of_taints_are_all_that_a_server_may_fill_in(version: str):
    sick = Slice(
        name="s-01", devices=(replace(DEVICE, taints=(FAULT,)), replace(DEVICE, name="gpu-1"))
    )
    sent, stored = (encode(sick, version) for _ in range(2))
    device = stored["spec"]["devices"][0]
    device.get("basic", device)["taints"][0]["timeAdded"] = "2026-01-02T03:04:05Z"
    assert stored != sent
    assert keeps(stored, sent)
    device.get("basic", device)["taints"] = []
    assert not keeps(stored, sent)


def test_what_changed_is_encoded_anew():
    encoder = DeviceEncoder()
    calm = Slice(name="s-01", devices=(replace(DEVICE, taints=()),))
    encode(calm, encoder=encoder)
    assert encode(calm, "v1beta1", encoder=encoder) == encode(calm, "v1beta1")
    larger = Slice(name="s-01", devices=(replace(calm.devices[0], capacity=()),))
    assert encode(larger, encoder=encoder) == encode(larger)
    assert encode(GPUS, encoder=encoder) == encode(GPUS)
