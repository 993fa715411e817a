"""What happens to an object before it is stored: gates, defaults, canonical form, checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from hack.fakeapi import gates, quantity, validation
from hack.fakeapi.kinds import DEFAULT_SERVED, Kind
from hack.fakeapi.refusal import invalid

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`gates` overrides the defaults of the version; `served` lists versions by group."""

    git_version: str = "v1.37.2"
    served: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: DEFAULT_SERVED)
    gates: Mapping[str, bool] = field(default_factory=dict)

    @property
    def minor(self) -> int:
        return int(self.git_version.split(".")[1])

    @property
    def gates_off(self) -> frozenset[str]:
        return frozenset(
            gate
            for gate in gates.SINCE
            if not gates.enabled(gate, minor=self.minor, overrides=self.gates)
        )


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def prepare(kind: Kind, obj: Obj, old: Obj | None, settings: Settings) -> None:
    """Changes `obj`; raises a 422 that lists every cause."""
    causes = list(validation.name(obj["metadata"].get("name")))
    if kind.plural == "resourceslices":
        spec, before = obj.setdefault("spec", {}), (old or {}).get("spec")
        gates.drop_from_slice(spec, before, settings.gates_off)
        causes += validation.resource_slice(spec, before, minor=settings.minor)
        if not causes:
            _canonical_slice(spec)
    elif kind.plural == "resourceclaims":
        _default_requests(obj)
        gates.drop_from_claim_status(
            obj.get("status") or {}, (old or {}).get("status"), settings.gates_off
        )
        causes += validation.resource_claim(obj, old)
    if causes:
        raise invalid(kind.kind, str(obj["metadata"].get("name")), causes)


def _canonical_slice(spec: Obj) -> None:
    for device in spec.get("devices") or ():
        for field_name in ("attributes", "capacity", "taints", "consumesCounters"):
            if not device.get(field_name, True):
                del device[field_name]
        for taint in device.get("taints") or ():
            taint.setdefault("timeAdded", now())
        for capacity in (device.get("capacity") or {}).values():
            capacity["value"] = quantity.canonical(str(capacity["value"]))
        for entry in device.get("consumesCounters") or ():
            _canonical_counters(entry["counters"])
    for entry in spec.get("sharedCounters") or ():
        _canonical_counters(entry["counters"])


def _canonical_counters(counters: Obj) -> None:
    for counter in counters.values():
        counter["value"] = quantity.canonical(str(counter["value"]))


def _default_requests(claim: Obj) -> None:
    devices = (claim.get("spec") or {}).get("devices") or {}
    for request in devices.get("requests") or ():
        exactly = [request["exactly"]] if request.get("exactly") else []
        for one in (*exactly, *(request.get("firstAvailable") or ())):
            one.setdefault("allocationMode", "ExactCount")
            if one["allocationMode"] == "ExactCount":
                one.setdefault("count", 1)
