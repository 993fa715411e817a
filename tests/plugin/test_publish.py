"""The slices of a node that follow its hardware and its claims, over HTTP, one look at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from driver.core.choices import DEFAULT, Choices
from driver.core.ids import CdiId, ClaimUID, DeviceName, PoolName
from driver.core.inventory import build_inventory
from driver.core.ledger import Entry, Holding, Slot
from driver.core.live import Foreign
from driver.core.snapshot import GpuFacts
from driver.kube.client import Client
from driver.kube.login import login
from driver.kube.reflector import Reflector
from driver.kube.watching import Query
from driver.plugin.allocations import Allocations, trim
from driver.plugin.node import Hardware, Identity
from driver.plugin.publish import Publisher
from driver.plugin.served import Served, ServedVersion
from driver.plugin.supervise import Supervisor
from hack.fakeapi import ApiServer
from hack.fakeapi.faults import Answer
from hack.fakeapi.scheduler import Scheduler
from tests.plugin.nodes import mig_gpu, mig_snapshot, partition
from tests.plugin.stubs import DRIVER, NODE, POOL, device, gpu

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
            p: partial(_of_kind, p) for p in (*PROFILES, "gpu")
        }
        self.scheduler = Scheduler(server.cluster, classes)

    def _follow(self, served: Served) -> Reflector:
        slices = Reflector(self.client, Query(resource=served.slices))
        self.supervisor.start("slices", slices.run)
        if self.choices.follow:
            keep = partial(trim, driver=DRIVER, pool=PoolName(POOL))
            claims = Reflector(self.client, Query(resource=served.claims), keep=keep)
            self.allocations.follow(claims, on_change=self.heard.release)
            self.supervisor.start("claims", claims.run)
        return slices

    def look(self) -> float | None:
        """A round of the publisher, as soon as it has its lists."""
        for _ in range(10):
            if (pause := self.publisher.look()) != 0:
                return pause
        raise AssertionError(f"no lists: {self.server.requests.all()}")

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
        return [d["name"] for d in listed if _of_kind(kind, DRIVER, d)]

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


def _of_kind(kind: str, driver: str, found: dict[str, Any]) -> bool:
    attributes = found["attributes"]
    own = attributes.get("profile", attributes["type"])["string"]
    return driver == DRIVER and own == kind


Make = Callable[..., Bench]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Bench] = []
    with ApiServer() as server:
        server.cluster.create("nodes", {"metadata": {"name": NODE}})
        for kind in (*PROFILES, "gpu"):
            server.cluster.create("deviceclasses", {"metadata": {"name": kind}, "spec": {}})
        client = Client(
            login(kubeconfig=str(server.write_kubeconfig(tmp_path / "kubeconfig"))),
            user_agent="test",
        )

        def bench(*gpus: GpuFacts, choices: Choices = DEFAULT) -> Bench:
            made.append(Bench(server, client, *(gpus or ONE_GPU), choices=choices))
            made[-1].look()
            return made[-1]

        yield bench
        for each in made:
            each.supervisor.end()
            assert each.supervisor.join(10) == []
        client.close()


def test_a_start_on_what_is_published_already_writes_nothing(make: Make) -> None:
    first = make()
    assert first.metrics.devices == 1 + 17
    assert first.generations() == {1}
    first.allocate("1g.10gb")
    first.look()
    first.writes()
    second = make()
    assert second.writes() == 0
    assert second.look() == 600.0


def lopsided(make: Make) -> Bench:
    """GPU 0 was full and is idle again, which is not published yet; GPU 1 is in use."""
    bench = make(mig_gpu(0), mig_gpu(1))
    places = bench.allocate("3g.40gb", "3g.40gb", "1g.10gb")
    assert [name.rpartition("-mig-")[0] for name in places] == [device(0), device(0), device(1)]
    bench.look()
    bench.release("c0", "c1")
    bench.writes()
    return bench


def test_the_order_follows_what_is_in_use_at_the_same_generation(make: Make) -> None:
    bench = lopsided(make)
    assert bench.order("2g.20gb")[0].startswith(device(0))
    bench.look()
    assert bench.writes() == 3
    assert bench.generations() == {1}
    for kind in PROFILES:
        assert bench.order(kind)[0].startswith(device(1)), kind
    assert bench.metrics.chosen == [True, True, True]


def test_an_order_that_still_leads_to_the_best_device_is_not_written(make: Make) -> None:
    bench = make(mig_gpu(0), mig_gpu(1))
    bench.writes()
    for kind in PROFILES:
        bench.allocate(kind)
        bench.look()
    assert bench.writes() == 0
    assert bench.metrics.chosen == [True] * 5


def test_an_allocation_that_the_policy_would_not_have_made_is_counted(make: Make) -> None:
    bench = lopsided(make)
    bench.allocate("2g.20gb")
    bench.look()
    assert bench.metrics.chosen == [True, True, True, False]


def test_after_a_burst_the_static_order_stands_until_it_is_quiet(make: Make) -> None:
    bench = lopsided(make)
    static = {kind: bench.order(kind) for kind in (*PROFILES, "gpu")}
    assert bench.look() == 0.1
    assert bench.order("1g.10gb") != static["1g.10gb"]
    bench.allocate(*["1g.10gb"] * 4)
    assert bench.look() == 0.1
    assert {kind: bench.order(kind) for kind in static} == static
    assert bench.look() == 600.0
    assert {kind: bench.order(kind) for kind in static} != static
    assert bench.generations() == {1}
    bench.writes()
    bench.look()
    assert bench.writes() == 0


def test_an_order_that_never_changes_follows_no_claims(make: Make) -> None:
    bench = make(choices=Choices(follow=False))
    bench.writes()
    bench.allocate("3g.40gb", "1g.10gb")
    assert bench.look() == 600.0
    assert bench.writes() == 0
    assert bench.server.requests.all("list", "resourceclaims") == []


def test_somebody_elses_write_in_between_is_no_failure_and_is_read_again(make: Make) -> None:
    bench = lopsided(make)
    bench.server.fail(Answer(status=409, reason="Conflict"), verb="update", times=1)
    assert bench.look() == 9.0
    assert bench.problems[-1] == ""
    assert bench.look() == 600.0
    assert bench.order("1g.10gb")[0].startswith(device(1))


def test_a_refusal_is_told_until_it_is_over(make: Make) -> None:
    bench = lopsided(make)
    bench.server.fail(Answer(status=422, reason="Invalid"), verb="update", times=1)
    assert bench.look() == 600.0
    assert "422" in bench.problems[-1]
    bench.look()
    assert bench.problems[-1] == ""


def test_a_foreign_instance_taints_what_it_overlaps_and_nothing_else(make: Make) -> None:
    bench = make()
    (held,) = bench.allocate("1g.10gb")
    bench.look()
    bench.hardware.found(
        bench.inventory, (Foreign(gpu=gpu(0).uuid, instance=5, slots=0b1111_0000),)
    )
    bench.look()
    overlapping = [
        *(partition(0, "1g.10gb", start) for start in (4, 5, 6)),
        *(partition(0, "1g.20gb", start) for start in (4, 6)),
        partition(0, "2g.20gb", 4),
        partition(0, "3g.40gb", 4),
        device(0),
    ]
    assert bench.tainted() == {name: ["foreign"] for name in overlapping}
    assert held in bench.order("1g.10gb")
    bench.hardware.found(bench.inventory)
    bench.look()
    assert bench.tainted() == {}


def prepared_on_gpu_1(boot: str) -> dict[ClaimUID, Entry]:
    """What the ledger holds of a claim that is gone from the API."""
    holding = Holding(
        request="r",
        pool=PoolName(POOL),
        device=DeviceName(partition(1, "3g.40gb", 4)),
        gpu=gpu(1).uuid,
        cdi_id=CdiId("c"),
        slot=Slot(profile="3g.40gb", start=4, size=4, ours=True),
    )
    entry = Entry(uid=ClaimUID("u"), namespace="n", name="c", boot_id=boot, holdings=(holding,))
    return {entry.uid: entry}


@pytest.mark.parametrize(("boot", "first"), [("boot-1", 1), ("boot-0", 0)])
def test_what_still_runs_here_takes_its_slots_but_not_what_ran_before_the_boot(
    make: Make, boot: str, first: int
) -> None:
    bench = make(mig_gpu(0), mig_gpu(1))
    bench.entries = prepared_on_gpu_1(boot)
    bench.look()
    assert bench.order("1g.10gb")[0].startswith(device(first))


def test_a_lost_gpu_takes_its_devices_along_but_for_those_in_use(make: Make) -> None:
    bench = make(mig_gpu(0), mig_gpu(1))
    (held,) = bench.allocate("1g.10gb")
    bench.look()
    before = {d["name"]: d for s in bench.slices() for d in s["spec"].get("devices", ())}
    bench.writes()
    bench.hardware.found(build_inventory(mig_snapshot(mig_gpu(1))))
    bench.look()
    left = {d["name"]: d for s in bench.slices() for d in s["spec"].get("devices", ())}
    assert {n for n in left if n.startswith(device(0))} == {held}
    assert left[held] == before[held]
    sets = {c["name"] for s in bench.slices() for c in s["spec"].get("sharedCounters", ())}
    assert sets == {gpu(0).uuid.lower(), gpu(1).uuid.lower()}
    assert bench.writes() == len(bench.slices())


class Looks:
    """Counts rounds in place of making them, in the publisher's own thread."""

    def __init__(self, bench: Bench) -> None:
        self.publisher = bench.publisher
        self.at: list[float] = []
        self.seen = threading.Semaphore(0)
        bench.publisher.look = self._look  # type: ignore[method-assign]
        bench.supervisor.start("publisher", bench.publisher.run)
        self.wait()

    def _look(self) -> float | None:
        self.at.append(time.monotonic())
        self.seen.release()
        return None

    def wait(self) -> None:
        assert self.seen.acquire(timeout=10)


def test_the_first_of_a_burst_is_looked_at_at_once_and_the_rest_together(make: Make) -> None:
    bench = make()
    looks = Looks(bench)
    bench.publisher.allocated()
    looks.wait()
    for _ in range(20):
        bench.publisher.allocated()
    looks.wait()
    assert looks.at[-1] - looks.at[-2] >= 0.09
    assert not looks.seen.acquire(timeout=0.2)
    assert len(looks.at) == 3


def test_lost_slices_are_looked_at_at_once_in_a_burst_too(make: Make) -> None:
    bench = make()
    looks = Looks(bench)
    bench.publisher.allocated()
    looks.wait()
    bench.publisher.allocated()
    bench.publisher.changed()
    looks.wait()
    assert not looks.seen.acquire(timeout=0.2)
    assert len(looks.at) == 3
