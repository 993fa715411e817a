"""What the API server refuses in a ResourceSlice or a ResourceClaim (422), by server version.

Restated from the API's own documentation of each field. Rules across slices are not checked here
either: an invalid pool is found by the scheduler.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from hack.fakeapi import quantity

Obj = dict[str, Any]
Causes = Iterator[str]

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?\Z")
_SEMVER: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?\Z"
)
_NODE_SELECTIONS: Final = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_VALUES: Final = {"string": str, "version": str, "int": int, "bool": bool}
_LISTS: Final = {"strings": str, "versions": str, "ints": int, "bools": bool}
_EFFECTS: Final = frozenset({"None", "NoSchedule", "NoExecute"})


def name(text: object) -> Causes:
    if not isinstance(text, str) or len(text) > 253 or not _SUBDOMAIN.match(text):
        yield f"metadata.name: Invalid value: {text!r}: must be a lowercase RFC 1123 subdomain"


def resource_slice(spec: Obj, old: Obj | None, *, minor: int) -> Causes:
    yield from _identity(spec, old)
    yield from _node_selection(spec)
    devices, shared = spec.get("devices"), spec.get("sharedCounters")
    if minor >= 35 and devices is not None and shared is not None:
        yield "spec: Invalid value: `devices` and `sharedCounters` exclude one another"
    yield from _devices(devices or [], minor=minor)
    yield from _shared_counters(shared, minor=minor)


def _identity(spec: Obj, old: Obj | None) -> Causes:
    driver, pool = spec.get("driver"), spec.get("pool") or {}
    if not _matches(_SUBDOMAIN, driver, 63):
        yield f"spec.driver: Invalid value: {driver!r}: must be a DNS subdomain of at most 63 bytes"
    pool_name = pool.get("name")
    if (
        not isinstance(pool_name, str)
        or len(pool_name) > 253
        or not all(_SUBDOMAIN.match(part) for part in pool_name.split("/"))
    ):
        yield f"spec.pool.name: Invalid value: {pool_name!r}: must be DNS subdomains joined by '/'"
    if not _is_int(pool.get("resourceSliceCount")) or pool["resourceSliceCount"] < 1:
        yield "spec.pool.resourceSliceCount: Invalid value: must be greater than zero"
    if not _is_int(pool.get("generation", 0)) or pool.get("generation", 0) < 0:
        yield "spec.pool.generation: Invalid value: must be greater than or equal to zero"
    if old is not None:
        if driver != old["driver"]:
            yield "spec.driver: Invalid value: field is immutable"
        if spec.get("nodeName") != old.get("nodeName"):
            yield "spec.nodeName: Invalid value: field is immutable"
        if pool_name != old["pool"]["name"]:
            yield "spec.pool.name: Invalid value: field is immutable"


def _node_selection(spec: Obj) -> Causes:
    for field in ("allNodes", "perDeviceNodeSelection"):
        if spec.get(field) is False:
            yield f"spec.{field}: Invalid value: must be either unset or set to true"
    given = [field for field in _NODE_SELECTIONS if spec.get(field)]
    if len(given) != 1:
        yield f"spec: Invalid value: exactly one of {', '.join(_NODE_SELECTIONS)} is required"
    terms = (spec.get("nodeSelector") or {}).get("nodeSelectorTerms")
    if "nodeSelector" in given and len(terms or ()) != 1:
        yield "spec.nodeSelector.nodeSelectorTerms: Invalid value: must have exactly one term"


def _devices(devices: list[Obj], *, minor: int) -> Causes:
    heavy = minor >= 35 and any(_is_heavy(d, minor) for d in devices)
    limit = 64 if heavy else 128
    if len(devices) > limit:
        yield f"spec.devices: Too many: {len(devices)}: must have at most {limit} items"
    seen: set[object] = set()
    for i, device in enumerate(devices):
        at = f"spec.devices[{i}]"
        if not _matches(_LABEL, device.get("name"), 63):
            yield f"{at}.name: Invalid value: {device.get('name')!r}: must be a DNS label"
        if device.get("name") in seen:
            yield f"{at}.name: Duplicate value: {device.get('name')!r}"
        seen.add(device.get("name"))
        yield from _attributes(device, at)
        yield from _consumption(device.get("consumesCounters") or [], at, minor=minor)
        yield from _taints(device.get("taints") or [], at, minor=minor)


def _is_heavy(device: Obj, minor: int) -> bool:
    lists = any(f in a for a in (device.get("attributes") or {}).values() for f in _LISTS)
    return bool(device.get("taints") or device.get("consumesCounters") or (lists and minor >= 36))


def _attributes(device: Obj, at: str) -> Causes:
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if len(attributes) + len(capacity) > 32:
        yield f"{at}: Too many: attributes and capacities: must have at most 32 items"
    for key, attribute in attributes.items():
        yield from _qualified(key, f"{at}.attributes[{key}]")
        yield from _attribute(attribute, f"{at}.attributes[{key}]")
    for key, entry in capacity.items():
        yield from _qualified(key, f"{at}.capacity[{key}]")
        yield from _quantity(entry.get("value"), f"{at}.capacity[{key}].value")
        if entry.get("requestPolicy") and not device.get("allowMultipleAllocations"):
            yield f"{at}.capacity[{key}].requestPolicy: Forbidden: needs allowMultipleAllocations"


def _qualified(key: str, at: str) -> Causes:
    domain, slash, short = key.rpartition("/")
    if slash and not _matches(_SUBDOMAIN, domain, 63):
        yield f"{at}: Invalid value: {domain!r}: must be a DNS subdomain of at most 63 bytes"
    if not _matches(_IDENTIFIER, short, 32):
        yield f"{at}: Invalid value: {short!r}: must be a C identifier of at most 32 bytes"


def _attribute(attribute: Obj, at: str) -> Causes:
    if len(attribute) != 1 or not set(attribute) <= {*_VALUES, *_LISTS}:
        yield f"{at}: Invalid value: exactly one value must be set"
        return
    ((form, value),) = attribute.items()
    if form in _LISTS:
        if not isinstance(value, list) or not value:
            yield f"{at}.{form}: Invalid value: must be a list with at least one value"
            return
        values, kind = value, _LISTS[form]
    else:
        values, kind = [value], _VALUES[form]
    for one in values:
        if not isinstance(one, kind) or (kind is int and isinstance(one, bool)):
            yield f"{at}.{form}: Invalid value: {one!r}: must be of type {kind.__name__}"
        elif isinstance(one, str) and len(one.encode()) > 64:
            yield f"{at}.{form}: Too long: must have at most 64 bytes"
        elif form in {"version", "versions"} and not _SEMVER.match(str(one)):
            yield f"{at}.{form}: Invalid value: {one!r}: must be a semantic version"


def _consumption(entries: list[Obj], at: str, *, minor: int) -> Causes:
    if minor >= 35 and len(entries) > 2:
        yield f"{at}.consumesCounters: Too many: must have at most 2 items"
    sets = [entry.get("counterSet") for entry in entries]
    if len(set(sets)) != len(sets):
        yield f"{at}.consumesCounters: Duplicate value: counter sets must be distinct"
    for entry in entries:
        where = f"{at}.consumesCounters[{entry.get('counterSet')}]"
        if not _matches(_LABEL, entry.get("counterSet"), 63):
            yield f"{where}.counterSet: Invalid value: must be a DNS label"
        yield from _counters(entry.get("counters") or {}, where)


def _shared_counters(sets: list[Obj] | None, *, minor: int) -> Causes:
    if minor >= 35 and len(sets or ()) > 8:
        yield f"spec.sharedCounters: Too many: {len(sets or ())}: must have at most 8 items"
    names = [entry.get("name") for entry in sets or ()]
    if len(set(names)) != len(names):
        yield "spec.sharedCounters: Duplicate value: names must be unique"
    for entry in sets or ():
        where = f"spec.sharedCounters[{entry.get('name')}]"
        if not _matches(_LABEL, entry.get("name"), 63):
            yield f"{where}.name: Invalid value: must be a DNS label"
        yield from _counters(entry.get("counters") or {}, where)
    if minor < 35 and sum(len(entry.get("counters") or ()) for entry in sets or ()) > 32:
        yield "spec.sharedCounters: Too many: must have at most 32 counters in total"


def _counters(counters: Obj, at: str) -> Causes:
    if not counters:
        yield f"{at}.counters: Required value: at least one counter is needed"
    if len(counters) > 32:
        yield f"{at}.counters: Too many: {len(counters)}: must have at most 32 items"
    for key, counter in counters.items():
        if not _matches(_LABEL, key, 63):
            yield f"{at}.counters[{key}]: Invalid value: must be a DNS label"
        yield from _quantity(counter.get("value"), f"{at}.counters[{key}].value")


def _taints(taints: list[Obj], at: str, *, minor: int) -> Causes:
    limit = 16 if minor >= 35 else 4
    if len(taints) > limit:
        yield f"{at}.taints: Too many: {len(taints)}: must have at most {limit} items"
    effects = _EFFECTS if minor >= 35 else _EFFECTS - {"None"}
    for i, taint in enumerate(taints):
        domain, slash, short = str(taint.get("key") or "").rpartition("/")
        if (
            (slash and not _matches(_SUBDOMAIN, domain, 253))
            or not short
            or not _matches(_LABEL_VALUE, short, 63)
        ):
            yield f"{at}.taints[{i}].key: Invalid value: {taint.get('key')!r}: must be a label name"
        if not _matches(_LABEL_VALUE, taint.get("value", ""), 63):
            yield f"{at}.taints[{i}].value: Invalid value: must be a label value"
        if taint.get("effect") not in effects:
            yield f"{at}.taints[{i}].effect: Unsupported value: {taint.get('effect')!r}"


def resource_claim(obj: Obj, old: Obj | None) -> Causes:
    requests = ((obj.get("spec") or {}).get("devices") or {}).get("requests") or []
    if len(requests) > 32:
        yield "spec.devices.requests: Too many: must have at most 32 items"
    for request in requests:
        if not _matches(_LABEL, request.get("name"), 63):
            yield f"spec.devices.requests[{request.get('name')}].name: Invalid value"
        if not request.get("exactly") and not request.get("firstAvailable"):
            yield f"spec.devices.requests[{request.get('name')}]: Required value: exactly one of"
    if old is None:
        return
    if obj.get("spec") != old.get("spec"):
        yield "spec: Invalid value: field is immutable"
    status, before = obj.get("status") or {}, old.get("status") or {}
    if before.get("allocation") and status.get("allocation") not in (None, before["allocation"]):
        yield "status.allocation: Invalid value: field is immutable once set"
    if len(status.get("reservedFor") or ()) > 256:
        yield "status.reservedFor: Too many: must have at most 256 items"
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or []
    allocated = {tuple(r.get(k) for k in ("driver", "pool", "device", "shareID")) for r in results}
    for entry in status.get("devices") or ():
        key = tuple(entry.get(k) for k in ("driver", "pool", "device", "shareID"))
        if key not in allocated:
            yield f"status.devices: Invalid value: {key}: must be an allocated device in the claim"


def _quantity(text: object, at: str) -> Causes:
    try:
        quantity.value(str(text))
    except ValueError as error:
        yield f"{at}: Invalid value: {error}"


def _matches(form: re.Pattern[str], text: object, longest: int) -> bool:
    return isinstance(text, str) and len(text) <= longest and form.match(text) is not None


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
