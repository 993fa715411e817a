"""Preparations that wait for a device leave room for the calls that give it back."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from driver.core.inventory import build_inventory
from driver.kubelet.plugin_server import KubeletServer
from driver.ports.kubelet import ClaimRef
from hack.fakekubelet import Claim, calls
from tests.plugin.stubs import DRIVER, claim, device, snapshot
from tests.plugin.test_claims import Node

VERSION = "v1.DRAPlugin"
POD_UID = "3f2c1a00-1111-4222-8333-0123456789ab"
GPUS = 56
"""As many devices as eight GPUs have partitions: a node whose pods are all deleted by force."""


class Crowd:
    """A node whose devices are all held, by claims that are gone from the API."""

    def __init__(self, gpus: int, *, waiting: int | None = None) -> None:
        self.node = Node()
        self.node.hardware.found(build_inventory(snapshot(gpus)))
        self.node.claims._patience = 10.0
        if waiting is not None:
            self.node.claims._places = threading.BoundedSemaphore(waiting)
        self.old = [self.node.add(claim(f"old{n}", device(n))) for n in range(gpus)]
        for ref in self.old:
            assert isinstance(self.node.prepare(ref), tuple)
            del self.node.api.claims[ref.namespace, ref.name]
        self.new = [self.node.add(claim(f"new{n}", device(n))) for n in range(gpus)]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short: the path of a socket has 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="kt") as made:
        yield Path(made)


def test_devices_that_many_pods_wait_for_are_taken_back_and_given_on(folder: Path) -> None:
    crowd = Crowd(GPUS)
    for name in ("p", "r"):
        (folder / name).mkdir()
    server = KubeletServer(
        driver_name=DRIVER,
        plugin_dir=folder / "p",
        registrar_dir=folder / "r",
        service=crowd.node.claims,
        pod_uid=POD_UID,
    )
    server.start()
    waiting = threading.Semaphore(0)
    hold = crowd.node.claims._places.acquire

    def acquire(**how: bool) -> bool:
        waiting.release()
        return hold(**how)

    crowd.node.claims._places.acquire = acquire  # type: ignore[method-assign, assignment]
    with ThreadPoolExecutor(2 * GPUS) as kubelet, calls.dial(server.paths.service) as channel:

        def asked(call: object, ref: ClaimRef) -> str:
            wanted = Claim(namespace=ref.namespace, name=ref.name, uid=ref.uid)
            return str(call(channel, VERSION, [wanted], timeout=30)[ref.uid].error)  # type: ignore[operator]

        prepared = [kubelet.submit(asked, calls.prepare, ref) for ref in crowd.new]
        for _ in range(GPUS):
            assert waiting.acquire(timeout=30)
        assert server.probe() is None
        taken = [kubelet.submit(asked, calls.unprepare, ref) for ref in crowd.old]
        assert {each.result(30) for each in taken} == {""}
        late = [each.result(30) for each in prepared if each.result(30)]
    assert all("is still held by claim" in said for said in late)
    assert len(late) <= GPUS - 48
    server.stop(0)


def test_who_finds_no_place_to_wait_is_told_at_once_who_holds_the_device() -> None:
    crowd = Crowd(3, waiting=1)
    with ThreadPoolExecutor(3) as kubelet:
        answers: list[Future[str]] = [
            kubelet.submit(lambda ref=ref: str(crowd.node.prepare(ref)))  # type: ignore[misc]
            for ref in crowd.new
        ]
        told, still = wait(answers, timeout=5)
        assert len(told) == 2
        assert all("is still held by claim default/old" in each.result() for each in told)
        for ref in crowd.old:
            assert crowd.node.claims.unprepare([ref])[ref.uid] is None
        assert all("Failure" not in each.result(10) for each in still)
