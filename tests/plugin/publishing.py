"""A publisher at an API server, for tests to look when they want; `conftest.py` makes it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from driver.core.choices import DEFAULT, Choices
from driver.core.ids import ClaimUID, PoolName
from driver.core.inventory import build_inventory
from driver.core.ledger import Entry
from driver.core.snapshot import GpuFacts
from driver.kube.client import Client
from driver.kube.reflector import Reflector
from driver.kube.watching import Query
from driver.plugin.node import Hardware, Identity
from driver.plugin.publishing.allocations import Allocations, trim
from driver.plugin.publishing.publisher import Publisher
from driver.plugin.served import Served, ServedVersion
from driver.plugin.supervise import Supervisor
from driver.ports.kube import Change
from hack.fakeapi import ApiServer
from hack.fakeapi.scheduler import Scheduler
from tests.plugin.nodes import mig_gpu, mig_snapshot
from tests.plugin.stubs import DRIVER, NODE, POOL

PROFILES = ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb")
ONE_GPU = (mig_gpu(0),)


class Metrics:
    def __init__(self) -> None:
        self.written: list[str] = []
        self.chosen: list[bool] = []
        self.devices = 0

    def slice_written(self, verb: str, reason: str) -> None:
        self.written.append(f"{verb}: {reason}")

    def set_published_devices(self, count: int) -> None:
        self.devices = count

    def allocated(self, *, as_chosen: bool) -> None:
        self.chosen.append(as_chosen)


class Pauses:
    def next(self) -> float:
        return 9.0

    def reset(self) -> None:
        """They do not grow."""


class Bench:
    """One node at an API server. Reflectors run; the publisher looks when it is told to."""

    def __init__(
        self, server: ApiServer, client: Client, *gpus: GpuFacts, choices: Choices = DEFAULT
    ) -> None:
        self.server, self.client, self.choices = server, client, choices
        self.hardware = Hardware()
        self.inventory = build_inventory(mig_snapshot(*gpus), choices)
        self.hardware.found(self.inventory)
        self.allocations = Allocations()
        self.entries: dict[ClaimUID, Entry] = {}
        self.metrics = Metrics()
        self.problems: list[str] = []
        self.supervisor = Supervisor()
        self.heard = threading.Semaphore(0)
        self.publisher = Publisher(
            identity=Identity(driver=DRIVER, node=NODE, boot_id="boot-1"),
            hardware=self.hardware,
            api=client,
            served=ServedVersion(lambda: "v1"),
            choices=choices,
            follow=self._follow,
            allocations=self.allocations,
            entries=lambda: self.entries,
            report=self.problems.append,
            metrics=self.metrics,
            resync=600.0,
            pauses=Pauses(),
            wakeup=self.supervisor.wakeup(),
        )
        classes: dict[str, Callable[[str, dict[str, Any]], bool]] = {
            p: partial(of_kind, p) for p in (*PROFILES, "gpu")
        }
        self.scheduler = Scheduler(server.cluster, classes)

    def _follow(self, served: Served) -> Reflector:
        slices = Reflector(self.client, Query(resource=served.slices))
        slices.subscribe(self._slice_changed)
        self.supervisor.start("slices", slices.run)
        if self.choices.follow:
            keep = partial(trim, driver=DRIVER, pool=PoolName(POOL))
            claims = Reflector(self.client, Query(resource=served.claims), keep=keep)
            self.allocations.follow(claims, on_change=self.heard.release)
            self.supervisor.start("claims", claims.run)
        return slices

    def _slice_changed(self, change: Change) -> None:
        self.publisher.slice_changed(change)

    def look(self) -> float | None:
        """A round of the publisher, as soon as it has its lists."""
        for _ in range(10):
            if (pause := self.publisher.look()) != 0:
                return pause
        raise AssertionError(f"no lists: {self.server.requests.all()}")

    def run(self) -> threading.Semaphore:
        """In a thread of its own; released after each look."""
        looked, look = threading.Semaphore(0), self.publisher.look

        def counted() -> float | None:
            pause = look()
            looked.release()
            return pause

        self.publisher.look = counted  # type: ignore[method-assign]
        self.supervisor.start("publisher", self.publisher.run)
        return looked

    def allocate(self, *kinds: str) -> list[str]:
        """A claim each, then wait until the plugin has heard of all."""
        made = []
        for kind in kinds:
            name = f"c{len(self.server.cluster.list('resourceclaims')[0])}"
            request = {"name": "r", "exactly": {"deviceClassName": kind}}
            obj = {
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"devices": {"requests": [request]}},
            }
            self.server.cluster.create("resourceclaims", obj)
            got = self.scheduler.allocate(name)
            made.append(got["status"]["allocation"]["devices"]["results"][0]["device"])
        if self.choices.follow:
            for _ in kinds:
                assert self.heard.acquire(timeout=10)
        return made

    def release(self, *names: str) -> None:
        for name in names:
            self.scheduler.release(name)
        for _ in names:
            assert self.heard.acquire(timeout=10)

    def order(self, kind: str) -> list[str]:
        """Devices of one kind, as published."""
        listed = [d for s in self.slices() for d in s["spec"].get("devices", ())]
        return [d["name"] for d in listed if of_kind(kind, DRIVER, d)]

    def slices(self) -> list[dict[str, Any]]:
        return self.server.cluster.list("resourceslices")[0]

    def tainted(self) -> dict[str, list[str]]:
        """Values of taints by device."""
        return {
            d["name"]: [t["key"].rpartition("/")[2] for t in d["taints"]]
            for s in self.slices()
            for d in s["spec"].get("devices", ())
            if d.get("taints")
        }

    def generations(self) -> set[int]:
        return {s["spec"]["pool"]["generation"] for s in self.slices()}

    def writes(self) -> int:
        """Since the last call."""
        count = sum(r.resource == "resourceslices" for r in self.server.requests.writes())
        self.server.requests.clear()
        return count


def of_kind(kind: str, driver: str, found: dict[str, Any]) -> bool:
    attributes = found["attributes"]
    own = attributes.get("profile", attributes["type"])["string"]
    return driver == DRIVER and own == kind


Make = Callable[..., Bench]
