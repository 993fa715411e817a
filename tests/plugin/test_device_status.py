"""Telling a claim what it got: a courtesy that never blocks, and gives up."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from driver.core.ids import CdiId, ClaimUID, DeviceName, GpuUuid, PoolName
from driver.core.ledger import Entry, Holding, Made, Slot
from driver.kube.client import Client
from driver.kube.login import login
from driver.plugin.preparing.device_status import DeviceStatus, status_of
from driver.plugin.served import ServedVersion
from driver.plugin.supervise import Wakeup
from driver.ports.kube import JsonObject
from hack.fakeapi import ApiServer
from hack.fakeapi.faults import Answer
from tests.plugin.stubs import DRIVER, POOL

NOW = "2026-01-01T00:00:00Z"
GPU = GpuUuid("GPU-a")


def entry(name: str = "a", uid: str = "uid-a") -> Entry:
    made = Made(instance=7, compute=0, uuid="MIG-7")
    holdings = tuple(
        Holding(
            request="r",
            pool=PoolName(POOL),
            device=DeviceName(device),
            gpu=GPU,
            cdi_id=CdiId("c"),
            slot=slot,
        )
        for device, slot in (
            ("gpu-a-mig-1g10gb-0", Slot(profile="1g.10gb", start=0, size=1, ours=True, made=made)),
            ("gpu-b", None),
        )
    )
    return Entry(
        uid=ClaimUID(uid), namespace="default", name=name, boot_id="boot-1", holdings=holdings
    )


def test_a_partition_is_told_with_its_parent_and_ids_and_a_whole_gpu_with_its_uuid() -> None:
    told = status_of(entry(), DRIVER, "resource.k8s.io/v1", now=NOW)
    devices = told["status"]["devices"]
    assert [(d["driver"], d["pool"], d["device"], d["data"]) for d in devices] == [
        (
            DRIVER,
            POOL,
            "gpu-a-mig-1g10gb-0",
            {"uuid": "MIG-7", "parentUUID": GPU, "gpuInstance": 7, "computeInstance": 0},
        ),
        (DRIVER, POOL, "gpu-b", {"uuid": GPU, "parentUUID": GPU}),
    ]
    assert told["metadata"] == {"name": "a", "namespace": "default", "uid": "uid-a"}
    assert {c["status"] for d in devices for c in d["conditions"]} == {"True"}


class Bench:
    """A reporter at work against a server with one allocated claim."""

    def __init__(self, server: ApiServer, client: Client) -> None:
        self.server = server
        self.status = DeviceStatus(
            client, ServedVersion(lambda: "v1"), driver=DRIVER, wakeup=Wakeup()
        )
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.status.run, args=(self.stop,))

    def claim(self, name: str) -> Entry:
        """What is prepared for a claim that is allocated so."""
        cluster = self.server.cluster
        request = {"name": "r", "exactly": {"deviceClassName": "c"}}
        obj = {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"devices": {"requests": [request]}},
        }
        made = cluster.create("resourceclaims", obj)
        held = entry(name, made["metadata"]["uid"])
        results = [
            {"request": "r", "driver": DRIVER, "pool": h.pool, "device": h.device}
            for h in held.holdings
        ]
        made["status"] = {"allocation": {"devices": {"results": results}}}
        cluster.update("resourceclaims", made, subresource="status")
        return held

    def devices(self, name: str) -> list[JsonObject]:
        claim = self.server.cluster.get("resourceclaims", name, "default")
        found: list[JsonObject] = claim["status"].get("devices", [])
        return found

    def end(self) -> None:
        self.stop.set()
        self.status._wakeup.wake()
        if self.thread.is_alive():
            self.thread.join(10)
            assert not self.thread.is_alive()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with ApiServer() as server:
        client = Client(
            login(kubeconfig=str(server.write_kubeconfig(tmp_path / "kubeconfig"))),
            user_agent="test",
        )
        made = Bench(server, client)
        yield made
        made.end()
        client.close()


def test_it_is_written_once_and_a_second_report_changes_only_its_time(bench: Bench) -> None:
    bench.thread.start()
    held = bench.claim("a")
    bench.status.report(held)
    bench.server.requests.wait_for("patch", "resourceclaims/status")
    assert [d["data"]["uuid"] for d in bench.devices("a")] == ["MIG-7", GPU]
    bench.status.report(held)
    bench.server.requests.wait_for("patch", "resourceclaims/status", count=2)
    assert len(bench.devices("a")) == 2


@pytest.mark.parametrize(
    "answer",
    [
        Answer(status=403, reason="Forbidden"),
        Answer(status=422, reason="Invalid"),
        Answer(status=409, reason="Conflict"),
        Answer(status=404, reason="NotFound"),
    ],
    ids=lambda a: a.reason,
)
def test_what_the_server_refuses_is_left_out_at_once_and_the_next_is_written(
    bench: Bench, answer: Answer
) -> None:
    bench.server.fail(answer, verb="patch", times=1)
    bench.thread.start()
    bench.status.report(bench.claim("a"))
    bench.status.report(bench.claim("b"))
    bench.server.requests.wait_for("patch", "resourceclaims/status", count=2)
    assert (bench.devices("a"), len(bench.devices("b"))) == ([], 2)


def test_a_later_claim_of_the_same_name_is_not_told_what_the_earlier_one_got(bench: Bench) -> None:
    bench.thread.start()
    bench.claim("a")
    bench.status.report(entry("a", "00000000-0000-0000-0000-000000000000"))
    bench.server.requests.wait_for("patch", "resourceclaims/status")
    assert bench.devices("a") == []


def test_a_server_that_is_away_is_asked_again(bench: Bench) -> None:
    bench.server.fail(Answer(status=503), verb="patch", times=1)
    bench.thread.start()
    bench.status.report(bench.claim("a"))
    bench.server.requests.wait_for("patch", "resourceclaims/status", count=2)
    assert len(bench.devices("a")) == 2


def test_the_end_of_the_process_does_not_wait_for_another_attempt(bench: Bench) -> None:
    rule = bench.server.fail(Answer(status=503), verb="patch")
    bench.thread.start()
    bench.status.report(bench.claim("a"))
    bench.server.requests.wait_for("patch", "resourceclaims/status")
    bench.end()
    assert rule.hits == 1


def test_no_more_than_a_bounded_number_waits(bench: Bench) -> None:
    for _ in range(300):
        bench.status.report(entry())
    assert len(bench.status._waiting) == 256
