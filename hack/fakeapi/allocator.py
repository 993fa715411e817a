"""Which devices one claim gets on one node: depth first, first fit, pure.

With several requests or a constraint it goes back and tries the next device, as the real allocator.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from hack.fakeapi import quantity

Obj = dict[str, Any]
Predicate = Callable[[str, Obj], bool]
"""(driver, device) -> may a request of this class have it?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    driver: str
    pool: str
    node: str
    device: Obj

    @property
    def key(self) -> tuple[str, str, str]:
        return self.driver, self.pool, self.device["name"]


@dataclass(slots=True)
class Ledger:
    """What is taken: devices, counters by (driver, pool, set, counter), capacity by device."""

    devices: set[tuple[str, str, str]] = field(default_factory=set)
    counters: Counter[tuple[str, ...]] = field(default_factory=Counter)
    capacity: dict[tuple[str, ...], Fraction] = field(default_factory=dict)


Pick = tuple[str, Candidate]
"""A request (or `request/alternative`) and what it gets."""


@dataclass(slots=True)
class Search:
    """Depth first over the requests of one claim, on one node."""

    candidates: list[Candidate]
    totals: Mapping[tuple[str, ...], int]
    ledger: Ledger
    predicates: Mapping[str, Predicate]
    claim: Obj

    def solve(self) -> list[Obj] | None:
        requests = (self.claim["spec"].get("devices") or {}).get("requests") or []
        return self._from(list(requests), [], [])

    def _from(
        self, requests: list[Obj], chosen: list[Pick], results: list[Obj]
    ) -> list[Obj] | None:
        if not requests:
            return results
        for path, part in alternatives(requests[0]):
            for more in self._sets(path, part, chosen):
                added = [_result(path, part, c) for c in more]
                picks = [*chosen, *((path, c) for c in more)]
                found = self._from(requests[1:], picks, [*results, *added])
                if found is not None:
                    return found
        return None

    def _sets(self, path: str, part: Obj, chosen: list[Pick]) -> Iterator[list[Candidate]]:
        able = [c for c in self.candidates if self._matches(part, c)]
        if part.get("allocationMode") == "All":
            if able and self._fits(path, part, chosen, able):
                yield able
            return
        yield from self._pick(path, part, chosen, able, part.get("count", 1))

    def _pick(
        self, path: str, part: Obj, chosen: list[Pick], able: list[Candidate], count: int
    ) -> Iterator[list[Candidate]]:
        if count == 0:
            yield []
            return
        for i, candidate in enumerate(able):
            if self._fits(path, part, chosen, [candidate]):
                rest = self._pick(
                    path, part, [*chosen, (path, candidate)], able[i + 1 :], count - 1
                )
                yield from ([candidate, *more] for more in rest)

    def _matches(self, part: Obj, candidate: Candidate) -> bool:
        predicate = self.predicates.get(part["deviceClassName"])
        if predicate is None or not predicate(candidate.driver, candidate.device):
            return False
        tolerations = part.get("tolerations") or ()
        return all(
            taint["effect"] == "None" or any(_tolerates(t, taint) for t in tolerations)
            for taint in candidate.device.get("taints") or ()
        )

    def _fits(self, path: str, part: Obj, chosen: list[Pick], more: list[Candidate]) -> bool:
        if part.get("adminAccess"):
            return True
        picks = [*chosen, *((path, c) for c in more)]
        together = [candidate for _, candidate in picks]
        counters = self.ledger.counters.copy()
        for candidate in together:
            counters.update(dict(uses(candidate)))
        keys = [c.key for c in together]
        return (
            len(set(keys)) == len(keys)
            and not any(key in self.ledger.devices for key in keys)
            and all(n <= self.totals.get(key, 0) for key, n in counters.items())
            and all(self._capacity_left(part, c) for c in more)
            and self._constraints_hold(picks)
        )

    def _capacity_left(self, part: Obj, candidate: Candidate) -> bool:
        if not candidate.device.get("allowMultipleAllocations"):
            return True
        for name, text in _wanted_capacity(part, candidate.device).items():
            total = quantity.value(candidate.device["capacity"][name]["value"])
            used = self.ledger.capacity.get((*candidate.key, name), Fraction())
            if used + quantity.value(text) > total:
                return False
        return True

    def _constraints_hold(self, picks: list[Pick]) -> bool:
        constraints = (self.claim["spec"].get("devices") or {}).get("constraints") or ()
        for constraint in constraints:
            concerned = [
                _attribute(candidate, constraint["matchAttribute"])
                for path, candidate in picks
                if _concerns(constraint.get("requests") or (), path)
            ]
            if None in concerned or any(value != concerned[0] for value in concerned):
                return False
        return True


def _concerns(requests: Collection[str], path: str) -> bool:
    """No list means all; a request's name stands for its alternatives too."""
    return not requests or path in requests or path.split("/", maxsplit=1)[0] in requests


def alternatives(request: Obj) -> list[tuple[str, Obj]]:
    if request.get("exactly"):
        return [(request["name"], request["exactly"])]
    return [(f"{request['name']}/{sub['name']}", sub) for sub in request["firstAvailable"]]


def _result(path: str, part: Obj, candidate: Candidate) -> Obj:
    result: Obj = {
        "request": path,
        "driver": candidate.driver,
        "pool": candidate.pool,
        "device": candidate.device["name"],
    }
    if part.get("adminAccess"):
        result["adminAccess"] = True
    if part.get("tolerations"):
        result["tolerations"] = part["tolerations"]
    if candidate.device.get("allowMultipleAllocations"):
        result["shareID"] = str(uuid.uuid4())
        result["consumedCapacity"] = _wanted_capacity(part, candidate.device)
    return result


def _wanted_capacity(part: Obj, device: Obj) -> dict[str, str]:
    """What is asked for, else the policy's default, else all of it."""
    asked = (part.get("capacity") or {}).get("requests") or {}
    return {
        name: asked.get(name) or (c.get("requestPolicy") or {}).get("default") or c["value"]
        for name, c in (device.get("capacity") or {}).items()
    }


def consume(ledger: Ledger, candidate: Candidate, consumed: Mapping[str, str]) -> None:
    for name, text in consumed.items():
        key = (*candidate.key, name)
        ledger.capacity[key] = ledger.capacity.get(key, Fraction()) + quantity.value(text)


def uses(candidate: Candidate) -> Iterator[tuple[tuple[str, ...], int]]:
    for entry in candidate.device.get("consumesCounters") or ():
        for name, counter in entry["counters"].items():
            key = (candidate.driver, candidate.pool, entry["counterSet"], name)
            yield key, int(quantity.value(counter["value"]))


def _tolerates(toleration: Obj, taint: Obj) -> bool:
    if toleration.get("effect") not in {None, "", taint["effect"]}:
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in {None, "", taint["key"]}
    wanted = (toleration.get("key"), toleration.get("value", ""))
    return wanted == (taint["key"], taint.get("value", ""))


def _attribute(candidate: Candidate, qualified: str) -> Any:
    attributes = candidate.device.get("attributes") or {}
    domain, _, short = qualified.rpartition("/")
    if qualified in attributes:
        return attributes[qualified]
    return attributes.get(short) if domain == candidate.driver else None
