"""Feature gates: which are on, and the fields that a server without them removes without a word.

A field stays where the stored object already has it; so a gate that is switched off later does not
damage what is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Obj = dict[str, Any]

SINCE: Final[Mapping[str, int]] = {
    "DRADeviceTaints": 36,
    "DRAPartitionableDevices": 36,
    "DRAConsumableCapacity": 36,
    "DRADeviceBindingConditions": 36,
    "DRAResourceClaimDeviceStatus": 34,
    "DRAListTypeAttributes": 99,
    "DRANodeAllocatableResources": 99,
}
"""The minor version since which each gate is on by default; 99: not yet."""

_DEVICE_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "DRADeviceTaints": ("taints",),
    "DRAPartitionableDevices": ("consumesCounters", "nodeName", "nodeSelector", "allNodes"),
    "DRAConsumableCapacity": ("allowMultipleAllocations",),
    "DRADeviceBindingConditions": (
        "bindsToNode",
        "bindingConditions",
        "bindingFailureConditions",
    ),
    "DRANodeAllocatableResources": ("nodeAllocatableResources",),
}
_LISTS: Final = ("strings", "versions", "ints", "bools")


def enabled(gate: str, *, minor: int, overrides: Mapping[str, bool]) -> bool:
    return overrides.get(gate, minor >= SINCE[gate])


def drop_from_slice(spec: Obj, old: Obj | None, off: frozenset[str]) -> None:
    for gate in off:
        if old is not None and _uses(old, gate):
            continue
        if gate == "DRAPartitionableDevices":
            spec.pop("sharedCounters", None)
            spec.pop("perDeviceNodeSelection", None)
        for device in spec.get("devices") or ():
            _drop_from_device(device, gate)


def drop_from_claim_status(status: Obj, old: Obj | None, off: frozenset[str]) -> None:
    if "DRAResourceClaimDeviceStatus" in off and not (old or {}).get("devices"):
        status.pop("devices", None)


def _drop_from_device(device: Obj, gate: str) -> None:
    for field in _DEVICE_FIELDS.get(gate, ()):
        device.pop(field, None)
    if gate == "DRAConsumableCapacity":
        for capacity in (device.get("capacity") or {}).values():
            capacity.pop("requestPolicy", None)
    if gate == "DRAListTypeAttributes":
        for attribute in (device.get("attributes") or {}).values():
            for field in _LISTS:
                attribute.pop(field, None)


def _uses(spec: Obj, gate: str) -> bool:
    devices = spec.get("devices") or ()
    if gate == "DRAPartitionableDevices" and (
        spec.get("sharedCounters") or spec.get("perDeviceNodeSelection")
    ):
        return True
    if gate == "DRAListTypeAttributes":
        return any(
            field in attribute
            for device in devices
            for attribute in (device.get("attributes") or {}).values()
            for field in _LISTS
        )
    return any(d.get(field) for d in devices for field in _DEVICE_FIELDS.get(gate, ()))
