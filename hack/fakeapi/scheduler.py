"""Gives devices to claims as the scheduler does, without CEL: first fit in published order.

    nodes in name order
      complete pools of the newest generation
        slices in name order, devices in the order of their slice
          not taken, not tainted, counters left, capacity left, the class's predicate holds

What a DeviceClass selects is said by `predicates`, keyed by the name of the class.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from hack.fakeapi import quantity, strategy
from hack.fakeapi.allocator import (
    Candidate,
    Ledger,
    Predicate,
    Search,
    alternatives,
    consume,
    uses,
)
from hack.fakeapi.cluster import Cluster

Obj = dict[str, Any]


class Unschedulable(Exception):
    """No node has what the claim asks for."""


class Scheduler:
    def __init__(self, cluster: Cluster, predicates: Mapping[str, Predicate]) -> None:
        self._cluster = cluster
        self._predicates = predicates

    def allocate(
        self, name: str, *, namespace: str = "default", pod: str = "", node: str = ""
    ) -> Obj:
        """The claim with its allocation, reserved for `pod` (default: a pod named as the claim)."""
        with self._cluster.history.changed:
            claim = self._cluster.get("resourceclaims", name, namespace)
            if not (claim.get("status") or {}).get("allocation"):
                results, chosen = self._choose(claim, node)
                claim["status"] = {"allocation": self._allocation(claim, results, chosen)}
            reserved = claim["status"].setdefault("reservedFor", [])
            consumer = pod or name
            if consumer not in {entry["name"] for entry in reserved}:
                entry = {"resource": "pods", "name": consumer, "uid": str(uuid.uuid4())}
                reserved.append(entry)
            return self._cluster.update("resourceclaims", claim, subresource="status")

    def release(self, name: str, *, namespace: str = "default") -> None:
        """What the claim controller does when the last pod is gone."""
        with self._cluster.history.changed:
            claim = self._cluster.get("resourceclaims", name, namespace)
            claim.pop("status", None)
            self._cluster.update("resourceclaims", claim, subresource="status")

    def _choose(self, claim: Obj, node: str) -> tuple[list[Obj], str]:
        pools, totals = self._pools()
        ledger = self._taken(pools)
        for at in sorted({c.node for c in pools if node in {"", c.node}}):
            here = [c for c in pools if c.node == at]
            search = Search(here, totals, ledger, self._predicates, claim)
            if (results := search.solve()) is not None:
                return results, at
        raise Unschedulable(
            f"claim {claim['metadata']['name']}: no node of {len({c.node for c in pools})} has"
            " free devices for all of its requests"
        )

    def _pools(self) -> tuple[list[Candidate], dict[tuple[str, ...], int]]:
        """Devices in published order, and what each counter holds at most."""
        groups: dict[tuple[str, str], list[Obj]] = {}
        for item in self._cluster.list("resourceslices")[0]:
            spec = item["spec"]
            groups.setdefault((spec["driver"], spec["pool"]["name"]), []).append(spec)
        candidates: list[Candidate] = []
        totals: dict[tuple[str, ...], int] = {}
        for (driver, pool), specs in sorted(groups.items()):
            newest = max(s["pool"].get("generation", 0) for s in specs)
            current = [s for s in specs if s["pool"].get("generation", 0) == newest]
            if any(len(current) != s["pool"]["resourceSliceCount"] for s in current):
                continue
            for spec in current:
                for entry in spec.get("sharedCounters") or ():
                    for name, counter in entry["counters"].items():
                        key = (driver, pool, entry["name"], name)
                        totals[key] = int(quantity.value(counter["value"]))
                candidates += [
                    Candidate(driver=driver, pool=pool, node=spec.get("nodeName", ""), device=d)
                    for d in spec.get("devices") or ()
                ]
        return candidates, totals

    def _taken(self, candidates: list[Candidate]) -> Ledger:
        known = {c.key: c for c in candidates}
        ledger = Ledger()
        for claim in self._cluster.list("resourceclaims")[0]:
            allocation = (claim.get("status") or {}).get("allocation") or {}
            for result in (allocation.get("devices") or {}).get("results") or ():
                key = (result["driver"], result["pool"], result["device"])
                if result.get("adminAccess"):
                    continue
                candidate = known.get(key)
                if candidate is not None and candidate.device.get("allowMultipleAllocations"):
                    consume(ledger, candidate, result.get("consumedCapacity") or {})
                else:
                    ledger.devices.add(key)
                if candidate is not None:
                    ledger.counters.update(dict(uses(candidate)))
        return ledger

    def _allocation(self, claim: Obj, results: list[Obj], node: str) -> Obj:
        devices: Obj = {"results": results}
        if config := self._config(claim):
            devices["config"] = config
        field_term = {"key": "metadata.name", "operator": "In", "values": [node]}
        return {
            "devices": devices,
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field_term]}]},
            "allocationTimestamp": strategy.now(),
        }

    def _config(self, claim: Obj) -> list[Obj]:
        """Of the classes first, then of the claim: later ones win."""
        requested = claim["spec"].get("devices") or {}
        config: list[Obj] = []
        classes = {c["metadata"]["name"]: c for c in self._cluster.list("deviceclasses")[0]}
        for request in requested.get("requests") or ():
            for path, part in alternatives(request):
                device_class = classes.get(part["deviceClassName"]) or {}
                config += [
                    {"source": "FromClass", "requests": [path], **entry}
                    for entry in (device_class.get("spec") or {}).get("config") or ()
                ]
        config += [{"source": "FromClaim", **entry} for entry in requested.get("config") or ()]
        return config
