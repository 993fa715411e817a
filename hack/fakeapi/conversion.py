"""Between what is stored (v1) and v1beta1, the only version with another shape.

v1beta1 wraps the fields of a device in `basic` and does not wrap those of a request in `exactly`.
"""

from __future__ import annotations

from typing import Any, Final

from hack.fakeapi.kinds import Kind

Obj = dict[str, Any]
_REQUEST_FIELDS: Final = (
    "deviceClassName",
    "selectors",
    "allocationMode",
    "count",
    "adminAccess",
    "tolerations",
    "capacity",
)


def to_stored(kind: Kind, obj: Obj, version: str) -> Obj:
    """`obj` is ours to change."""
    if version == "v1beta1":
        for device in _devices(kind, obj):
            device.update(device.pop("basic", None) or {})
        for request in _requests(kind, obj):
            exactly = {f: request.pop(f) for f in _REQUEST_FIELDS if f in request}
            if exactly:
                request["exactly"] = exactly
    return obj


def from_stored(kind: Kind, obj: Obj, version: str) -> Obj:
    if version == "v1beta1":
        for device in _devices(kind, obj):
            basic = {k: device.pop(k) for k in list(device) if k != "name"}
            if basic:
                device["basic"] = basic
        for request in _requests(kind, obj):
            request.update(request.pop("exactly", None) or {})
    obj["apiVersion"] = f"{kind.group}/{version}" if kind.group else version
    return obj


def _devices(kind: Kind, obj: Obj) -> list[Obj]:
    if kind.plural != "resourceslices":
        return []
    return (obj.get("spec") or {}).get("devices") or []


def _requests(kind: Kind, obj: Obj) -> list[Obj]:
    spec: Obj = obj.get("spec") or {}
    if kind.plural == "resourceclaimtemplates":
        spec = spec.get("spec") or {}
    elif kind.plural != "resourceclaims":
        return []
    return (spec.get("devices") or {}).get("requests") or []
