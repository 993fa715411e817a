"""Two real plugins on one node, as in a rolling update: no call fails, nothing is written twice."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from hack.fakekubelet import Claim, calls
from hack.testbed import DRIVER, Testbed
from tests.integration.test_trouble import alive, free_port, until_ready, until_told
from tests.integration.waiting import until

pytestmark = pytest.mark.timeout(120)

VERSION = "v1.DRAPlugin"
UIDS = [f"{n}b9d2f5e-1111-4222-8333-444455556666" for n in range(9)]


class Pods:
    """The plugin pods of one node, oldest first."""

    def __init__(self, bed: Testbed) -> None:
        self.bed = bed
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *flags: str) -> None:
        """Returns when it is registered."""
        self.bed.start_plugin(f"--pod-uid={UIDS[len(self.processes)]}", *flags)
        assert self.bed.process is not None
        self.processes.append(self.bed.process)

    def end(self, which: int, number: int = signal.SIGTERM) -> int:
        self.processes[which].send_signal(number)
        return self.processes[which].wait(60)

    def prepare(self, which: int, claim: Claim) -> calls.ClaimResult:
        with calls.dial(self.endpoint(which)) as channel:
            return calls.prepare(channel, VERSION, [claim], timeout=30)[claim.uid]

    def unprepare(self, which: int, claim: Claim) -> str:
        with calls.dial(self.endpoint(which)) as channel:
            return calls.unprepare(channel, VERSION, [claim], timeout=30)[claim.uid].error

    def endpoint(self, which: int) -> Path:
        (found,) = [
            i.endpoint
            for i in self.bed.kubelet.registered(DRIVER)
            if UIDS[which] in str(i.endpoint)
        ]
        return found


@pytest.fixture
def pods(bed: Testbed) -> Iterator[Pods]:
    made = Pods(bed)
    yield made
    for process in made.processes:
        process.kill()
        process.wait()


@contextmanager
def watched(bed: Testbed) -> Iterator[list[str]]:
    """Whether there is a moment without a registered plugin; looks as fast as it can."""
    gaps: list[str] = []
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(0.002):
            if not bed.kubelet.registered(DRIVER):
                gaps.append("none is registered")

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield gaps
    finally:
        stop.set()
        thread.join()


def scraped(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        return str(answer.read().decode())


def test_either_plugin_answers_and_takes_back_and_the_second_writes_nothing(
    bed: Testbed, pods: Pods
) -> None:
    pods.start()
    before = bed.slices()
    whole, part = bed.claim("whole"), bed.claim("part", profile="1g.10gb")
    first = [pods.prepare(0, claim) for claim in (whole, part)]
    bed.api.requests.clear()
    port = free_port()
    pods.start(f"--http-address=127.0.0.1:{port}")
    until_ready(port)
    assert [pods.prepare(1, claim) for claim in (whole, part)] == first
    assert pods.unprepare(0, part) == ""
    assert "tessera_prepared_claims 1.0" in scraped(port)
    assert pods.prepare(0, part).error == ""
    assert "tessera_prepared_claims 2.0" in scraped(port)
    assert pods.unprepare(1, part) == ""
    assert pods.prepare(0, part).error == ""
    assert pods.unprepare(0, part) == ""
    assert pods.end(0) == 0
    assert pods.prepare(1, whole) == first[0]
    assert pods.unprepare(1, whole) == ""
    assert [r for r in bed.api.requests.writes() if "slices" in r.resource] == []
    assert bed.slices() == before


def started(bed: Testbed, pods: Pods, *flags: str) -> int:
    """A successor that serves HTTP; its port. It need not be registered."""
    port = free_port()
    address = f"--http-address=127.0.0.1:{port}"
    bed.start_plugin(f"--pod-uid={UIDS[1]}", address, *flags, wait=False)
    assert bed.process is not None
    pods.processes.append(bed.process)
    return port


def serves_pods(bed: Testbed, name: str) -> None:
    """By whichever plugin registered last, which is the one that the kubelet asks."""
    claim = bed.claim(name, profile="1g.10gb")
    assert bed.kubelet.prepare(DRIVER, [claim])[claim.uid].error == ""
    bed.end_claim(claim)


def test_a_successor_that_finds_no_driver_takes_no_call_from_the_one_that_has_it(
    bed: Testbed, pods: Pods
) -> None:
    pods.start()
    registered = bed.kubelet.registrations
    port = started(bed, pods, "--driver-root=/nowhere")
    until_told(port, "libnvidia-ml.so.1")
    assert alive(port)
    serves_pods(bed, "a")
    assert bed.kubelet.registrations == registered
    assert pods.end(0) == 0
    # Alone it serves whatever it lacks: claims must be able to end.
    assert bed.kubelet.wait_registrations(registered + 1, timeout=30)


def test_a_successor_that_waits_for_the_driver_takes_the_calls_when_it_has_it(
    bed: Testbed, pods: Pods
) -> None:
    pods.start()
    registered = bed.kubelet.registrations
    with bed.machine.rule("nvmlInit*", delay_ms=1500):
        port = started(bed, pods)
        until_told(port, "gpus")
        serves_pods(bed, "a")
        assert bed.kubelet.wait_registrations(registered + 1, timeout=30)
    until_ready(port)
    serves_pods(bed, "b")


def test_a_successor_that_is_set_wrong_ends_without_having_registered(
    bed: Testbed, pods: Pods
) -> None:
    pods.start()
    registered = bed.kubelet.registrations
    started(bed, pods, "--mig-profiles=9g.99gb")
    assert pods.processes[1].wait(30) == 2
    assert bed.kubelet.registrations == registered
    serves_pods(bed, "a")


def test_no_moment_is_without_a_plugin_and_no_pod_fails_while_plugins_are_replaced(
    bed: Testbed, pods: Pods
) -> None:
    pods.start()
    stop = threading.Event()
    served: list[str] = []

    def run_pods() -> None:
        while not stop.is_set():
            name = f"p{len(served)}"
            claim = bed.claim(name, profile="1g.10gb")
            answer = bed.kubelet.prepare(DRIVER, [claim])[claim.uid]
            assert answer.error == ""
            bed.end_claim(claim)
            served.append(name)

    with ThreadPoolExecutor(1) as pool, watched(bed) as gaps:
        running = pool.submit(run_pods)
        for old in range(2):
            pods.start()
            # A pod's readiness takes longer than a call that is just on its way.
            seen = len(served)
            until(lambda seen=seen: len(served) > seen + 1, "pods are not served")  # type: ignore[misc]
            assert pods.end(old) == 0
        stop.set()
        running.result(30)
    assert gaps == []
    assert len(served) > 10
    assert list(bed.cdi.iterdir()) == []


def test_a_call_that_runs_at_the_end_is_answered_before_the_plugin_leaves(
    bed: Testbed, pods: Pods
) -> None:
    """The kubelet closes its connection when the registration goes: that would fail the call."""
    pods.start()
    claim = bed.claim("slow", profile="1g.10gb")
    symbol = "nvmlDeviceCreateGpuInstanceWithPlacement"
    with ThreadPoolExecutor(1) as pool, bed.machine.rule(symbol, delay_ms=1500, times=1):
        preparing = pool.submit(bed.kubelet.prepare, DRIVER, [claim])
        until((bed.ledger / f"{claim.uid}.json").exists, "the claim is not begun")
        pods.processes[0].send_signal(signal.SIGTERM)
        assert preparing.result(30)[claim.uid].error == ""
        assert pods.processes[0].wait(30) == 0
    pods.start()
    assert pods.unprepare(1, claim) == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_when_the_first_ends_the_second_speaks_for_the_node(
    bed: Testbed, pods: Pods, number: int
) -> None:
    pods.start()
    before = {s["metadata"]["name"] for s in bed.slices()}
    pods.start()
    pods.end(0, number)
    bed.api.cluster.delete_all("resourceslices", fields="spec.nodeName=node-1")
    bed.api.requests.wait(lambda _: bed.complete() and len(bed.slices()) == len(before))
    assert {s["metadata"]["name"] for s in bed.slices()} == before
