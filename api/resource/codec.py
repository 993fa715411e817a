"""Wanted slices as JSON objects of resource.k8s.io v1, v1beta2 and v1beta1, and the way back.

Why it exists: three versions differ in one wrapper (`basic`, v1beta1 only), and the server rewrites
what it stores (quantities in canonical form, `timeAdded` filled in). So comparison happens on
values: both sides are decoded into `Slice` and compared there.

Unknown fields in a stored slice make it unequal to anything we want (`content` is None): somebody
else, or a later version of ours, put them there, and a rewrite is the honest answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from api.resource.quantity import format_quantity, parse_quantity
from api.resource.types import (
    Attribute,
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

GROUP: Final = "resource.k8s.io"

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOwner:
    """The Node that a slice belongs to; its slices go with it."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSlice:
    """A ResourceSlice as the server has it. `content` is None where it holds what we never write.

    `metadata` is kept as it came, for labels and annotations that others put there.
    """

    name: str
    uid: str
    resource_version: str
    driver: str
    pool: str
    node: str
    generation: int
    count: int
    owner: NodeOwner | None
    content: Slice | None
    metadata: JsonObject
    taint_times: Mapping[tuple[str, Taint], str]


class DeviceEncoder:
    """Devices as JSON. One that comes again is not encoded again but for its taints, as long as the
    rest of it is made of the same objects; what comes out is shared, and must not be changed.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[Device, JsonObject]] = {}

    def encode(
        self, device: Device, version: str, times: Mapping[tuple[str, Taint], str]
    ) -> JsonObject:
        known = self._known.get(device.name)
        if known is None or not _shares_body(known[0], device):
            known = self._known[device.name] = device, _encode_body(device)
        return _whole(device, known[1], version, times)


def encode_slice(
    wanted: Slice,
    *,
    pool: Pool,
    generation: int,
    owner: NodeOwner,
    version: str,
    over: StoredSlice | None = None,
    encoder: DeviceEncoder | None = None,
) -> JsonObject:
    """The whole object to create, or to put in the place of `over`, whose taint times are kept."""
    encode = encoder.encode if encoder else _encode_device
    metadata: JsonObject = {k: v for k, v in over.metadata.items() if k in _KEPT} if over else {}
    metadata["name"] = wanted.name
    node = {"apiVersion": "v1", "kind": "Node", "name": owner.name, "uid": owner.uid}
    metadata["ownerReferences"] = [{**node, "controller": True}]
    times = over.taint_times if over else {}
    spec: JsonObject = {
        "driver": pool.driver,
        "nodeName": pool.node,
        "pool": {
            "name": pool.name,
            "generation": generation,
            "resourceSliceCount": len(pool.slices),
        },
    }
    # An empty list is left out: to the server it is present, and devices exclude counters.
    if wanted.devices:
        spec["devices"] = [encode(d, version, times) for d in wanted.devices]
    if wanted.counter_sets:
        spec["sharedCounters"] = [
            {"name": s.name, "counters": _counters(s.counters)} for s in wanted.counter_sets
        ]
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "ResourceSlice",
        "metadata": metadata,
        "spec": spec,
    }


def decode_stored(obj: Mapping[str, Any], *, content: Slice | None = None) -> StoredSlice:
    """A stored object of any served version. KeyError where it is no ResourceSlice at all.

    `content`: what its spec is known to hold, which then is not decoded again.
    """
    metadata, spec = obj["metadata"], obj["spec"]
    owners = [o for o in metadata.get("ownerReferences") or () if o.get("kind") == "Node"]
    return StoredSlice(
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        driver=spec["driver"],
        pool=spec["pool"]["name"],
        node=spec.get("nodeName", ""),
        generation=spec["pool"]["generation"],
        count=spec["pool"]["resourceSliceCount"],
        owner=NodeOwner(name=owners[0]["name"], uid=owners[0]["uid"]) if owners else None,
        content=content or _decode_content(metadata["name"], spec),
        metadata=dict(metadata),
        taint_times=dict(_taint_times(spec)),
    )


def keeps(stored: JsonObject, sent: JsonObject) -> bool:
    """Whether the server has stored what was sent, and filled in no more than times of taints."""
    have, want = ({**obj["spec"]} for obj in (stored, sent))
    devices, wanted = (spec.pop("devices", None) or () for spec in (have, want))
    return (
        have == want
        and len(devices) == len(wanted)
        and all(
            a == b or _timeless(a) == _timeless(b) for a, b in zip(devices, wanted, strict=True)
        )
    )


_KEPT: Final = {"name", "labels", "annotations", "resourceVersion", "uid", "finalizers"}
_EFFECTS: Final = {effect.value for effect in TaintEffect}


def _decode_content(name: str, spec: Mapping[str, Any]) -> Slice | None:
    try:
        _only(spec, "driver", "nodeName", "pool", "devices", "sharedCounters")
        _only(spec["pool"], "name", "generation", "resourceSliceCount")
        return Slice(
            name=name,
            devices=tuple(_decode_device(d) for d in spec.get("devices") or ()),
            counter_sets=tuple(_decode_set(s) for s in spec.get("sharedCounters") or ()),
        )
    except (KeyError, TypeError, ValueError):
        return None


def _taint_times(spec: Mapping[str, Any]) -> Iterator[tuple[tuple[str, Taint], str]]:
    for device in spec.get("devices") or ():
        for taint in (device.get("basic") or device).get("taints") or ():
            if "timeAdded" in taint and taint["effect"] in _EFFECTS:
                yield (device["name"], _taint(taint)), taint["timeAdded"]


def _encode_device(
    device: Device, version: str, times: Mapping[tuple[str, Taint], str]
) -> JsonObject:
    return _whole(device, _encode_body(device), version, times)


def _whole(
    device: Device, body: JsonObject, version: str, times: Mapping[tuple[str, Taint], str]
) -> JsonObject:
    if device.taints:
        taints = [_encode_taint(t, times.get((device.name, t))) for t in device.taints]
        body = {**body, "taints": taints}
    return (
        {"name": device.name, "basic": body}
        if version == "v1beta1"
        else {"name": device.name, **body}
    )


def _shares_body(one: Device, other: Device) -> bool:
    return (
        one.attributes is other.attributes
        and one.capacity is other.capacity
        and one.consumes is other.consumes
    )


def _encode_body(device: Device) -> JsonObject:
    """All of it but its taints, whose times are not part of the device."""
    body: JsonObject = {}
    if device.attributes:
        body["attributes"] = {name: _encode_attribute(a) for name, a in device.attributes}
    if device.capacity:
        body["capacity"] = {
            name: {"value": format_quantity(amount)} for name, amount in device.capacity
        }
    if device.consumes:
        body["consumesCounters"] = [
            {"counterSet": c.counter_set, "counters": _counters(c.counters)}
            for c in device.consumes
        ]
    return body


def _encode_attribute(attribute: Attribute) -> JsonObject:
    match attribute:
        case Text(value):
            return {"string": value}
        case Version(value):
            return {"version": value}
        case Number(number):
            return {"int": number}
        case Flag(flag):
            return {"bool": flag}


def _encode_taint(taint: Taint, added: str | None) -> JsonObject:
    obj = {"key": taint.key, "value": taint.value, "effect": taint.effect.value}
    if not taint.value:
        del obj["value"]
    if added:
        obj["timeAdded"] = added
    return obj


def _timeless(device: JsonObject) -> JsonObject:
    if "basic" in device:
        return {**device, "basic": _timeless(device["basic"])}
    if "taints" not in device:
        return device
    taints = [{k: v for k, v in t.items() if k != "timeAdded"} for t in device["taints"]]
    return {**device, "taints": taints}


def _decode_taint(obj: Mapping[str, Any]) -> Taint:
    _only(obj, "key", "value", "effect", "timeAdded")
    return _taint(obj)


def _taint(obj: Mapping[str, Any]) -> Taint:
    return Taint(key=obj["key"], value=obj.get("value", ""), effect=TaintEffect(obj["effect"]))


def _counters(counters: tuple[tuple[str, int], ...]) -> JsonObject:
    return {name: {"value": format_quantity(amount)} for name, amount in counters}


def _only(obj: Mapping[str, Any], *known: str) -> None:
    if unknown := obj.keys() - set(known):
        raise ValueError(f"fields that we do not write: {sorted(unknown)}")


def _decode_device(obj: Mapping[str, Any]) -> Device:
    body = obj
    if "basic" in obj:
        _only(obj, "name", "basic")
        body = obj["basic"]
    _only(body, "name", "attributes", "capacity", "consumesCounters", "taints")
    return Device(
        name=obj["name"],
        attributes=tuple(
            (name, _decode_attribute(a)) for name, a in sorted(_map(body, "attributes").items())
        ),
        capacity=_amounts(_map(body, "capacity")),
        consumes=tuple(_decode_consumption(c) for c in body.get("consumesCounters") or ()),
        taints=tuple(_decode_taint(t) for t in body.get("taints") or ()),
    )


def _decode_set(obj: Mapping[str, Any]) -> CounterSet:
    _only(obj, "name", "counters")
    return CounterSet(name=obj["name"], counters=_amounts(obj["counters"]))


def _decode_consumption(obj: Mapping[str, Any]) -> Consumption:
    _only(obj, "counterSet", "counters")
    return Consumption(counter_set=obj["counterSet"], counters=_amounts(obj["counters"]))


def _map(body: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = body.get(key) or {}
    return found


def _amounts(counters: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    amounts = []
    for name, entry in sorted(counters.items()):
        _only(entry, "value")
        amounts.append((name, parse_quantity(entry["value"])))
    return tuple(amounts)


def _decode_attribute(obj: Mapping[str, Any]) -> Attribute:
    if len(obj) != 1:
        raise ValueError("an attribute with several values")
    match dict(obj):
        case {"string": str(value)}:
            return Text(value)
        case {"version": str(value)}:
            return Version(value)
        case {"bool": bool(flag)}:
            return Flag(flag)
        case {"int": int(number)}:
            return Number(number)
        case _:
            raise ValueError("an attribute of a kind that we do not write")
