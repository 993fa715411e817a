"""From a line in the kernel's log to the taint on the API server, beside one PUT of such a slice.

Why it exists: a fault that is published late is a job that is lost. What can be promised depends on
the server that stores the taint, so it is a real one (`hack.controlplane`), and each fault is
followed by one bare PUT of the same content as the largest of its slices. The plugin is the real
process on a simulated node; time is taken where a plain watch hears of the last of the GPU's
devices.
"""

from __future__ import annotations

import json
import queue
import statistics
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from driver.core.errors import KubeError
from driver.kube.client import Client
from driver.ports.kube import Bookmark
from driver.ports.resources import resource_slices
from hack.controlplane import ControlPlane
from tests.bench import bare
from tests.bench.livenode import DRIVER, LiveNode
from tests.bench.measures import percentile
from tests.bench.report import Result

NODE: Final = "node-1"
FAULTS: Final = 200
PACE: Final = 1.05
PATIENCE: Final = 30.0
TAINT: Final = f"{DRIVER}/fault"
CODES: Final = (95, 79, 64)
"""A reset, a reboot, an operator: each is worse than the one before it, so it changes the taint."""
SLICES: Final = resource_slices()
SILENCE: Final = 60.0
SPARE: Final = "bench.example.com"

Obj = dict[str, Any]
Fault = tuple[str, str, int]


class Ears:
    """The slices of the driver, as a watch tells of them. For one thread."""

    def __init__(self) -> None:
        self.heard: queue.Queue[tuple[float, Obj] | KubeError] = queue.Queue()
        self._slices: dict[str, Obj] = {}

    def take(self, obj: Obj) -> None:
        self._slices[obj["metadata"]["name"]] = obj

    def wait(self, what: str) -> float:
        """Until one more is heard: when that was."""
        try:
            told = self.heard.get(timeout=PATIENCE)
        except queue.Empty:
            raise TimeoutError(f"{what}: nothing was heard in {PATIENCE:.0f} s") from None
        if isinstance(told, KubeError):
            raise told
        at, obj = told
        self.take(obj)
        return at

    def complete(self) -> bool:
        pools = [s["spec"]["pool"] for s in self._slices.values()]
        return bool(pools) and all(p["resourceSliceCount"] == len(pools) for p in pools)

    def largest(self) -> Obj:
        """Of those with devices."""
        found = (s for s in self._slices.values() if s["spec"].get("devices"))
        return max(found, key=lambda s: len(json.dumps(s["spec"])))

    def devices(self, gpu: str = "") -> list[Obj]:
        """Those of one GPU, or all of them."""
        return [
            device
            for each in self._slices.values()
            for device in each["spec"].get("devices", ())
            if not gpu or gpu in {a.get("string") for a in device["attributes"].values()}
        ]


def measure() -> dict[str, Result]:
    with ControlPlane.start() as plane:
        client = bare.connect(plane)
        bare.make_nodes(client, [NODE])
        with listening(client) as ears, LiveNode(NODE, plane.kubeconfig) as node:
            results = compare(*faults_and_puts(client, node, ears))
        client.close()
    return results


def compare(taints: list[float], puts: list[float]) -> dict[str, Result]:
    middle, put = statistics.median(taints), statistics.median(puts)
    return {
        "fault_to_taint_p50_over_put": Result(
            value=middle / put,
            goal=3.0,
            unit="x",
            detail=f"p50 {middle * 1000:.1f} ms, one PUT {put * 1000:.1f} ms",
        ),
        "fault_to_taint_p99_s": Result(
            value=percentile(taints, 0.99), goal=0.5, unit="s", detail=f"over {len(taints)} faults"
        ),
    }


def faults_and_puts(client: Client, node: LiveNode, ears: Ears) -> tuple[list[float], list[float]]:
    """Seconds of each fault, and of the PUT that followed it."""
    taints: list[float] = []
    puts: list[float] = []
    begin(node, ears)
    spare = Spare(client)
    spare.make(ears)
    faults = worse_and_worse(ears)
    while len(taints) < FAULTS:
        fault = next(faults, None)
        if fault is None:
            begin(node, ears)
            faults = worse_and_worse(ears)
            continue
        gpu, address, code = fault
        began = time.perf_counter()
        node.kmsg(f"NVRM: Xid (PCI:{address}): {code}, bench {len(taints)}")
        taints.append(await_taint(ears, gpu, f"xid-{code}") - began)
        # Taints change once a second at most; a fault that waited for that would not be measured.
        time.sleep(max(0.0, began + PACE - time.perf_counter()))
        puts.append(spare.put(ears))
    return taints, puts


def begin(node: LiveNode, ears: Ears) -> None:
    """As on a new node: nothing is held against a GPU, and that is published."""
    node.stop()
    node.forget()
    node.start()
    while not ears.complete() or any(d.get("taints") for d in ears.devices()):
        ears.wait("all slices, without taints")


def worse_and_worse(ears: Ears) -> Iterator[Fault]:
    """For each code all GPUs (UUID, PCI address), the mildest code first."""
    wholes = [d["attributes"] for d in ears.devices()]
    gpus = sorted(
        (own["uuid"]["string"], own["resource.kubernetes.io/pciBusID"]["string"])
        for own in wholes
        if own["type"]["string"] == "gpu"
    )
    for code in CODES:
        for gpu, bus in gpus:
            yield gpu, bus.rpartition(".")[0], code


def await_taint(ears: Ears, gpu: str, value: str) -> float:
    """When the last of the GPU's devices was heard to have it."""
    while True:
        at = ears.wait(f"taint {value} on all devices of {gpu}")
        if all(has_taint(d, value) for d in ears.devices(gpu)):
            return at


def has_taint(device: Mapping[str, Any], value: str) -> bool:
    return any(t["key"] == TAINT and t.get("value") == value for t in device.get("taints", ()))


@contextmanager
def listening(client: Client) -> Iterator[Ears]:
    ears = Ears()
    ours = f"spec.driver={DRIVER}"
    listing = client.list(SLICES, fields=ours)
    for obj in listing.items:
        ears.take(obj)
    stream = client.watch(SLICES, since=listing.version, lasting=3600, silence=SILENCE, fields=ours)

    def listen() -> None:
        try:
            for event in stream:
                at = time.perf_counter()
                if not isinstance(event, Bookmark):
                    ears.heard.put((at, event.obj))
        except KubeError as error:
            ears.heard.put(error)

    thread = threading.Thread(target=listen, name="slices")
    with stream:
        thread.start()
        try:
            yield ears
        finally:
            stream.close()
            thread.join()


class Spare:
    """A copy of the largest of the plugin's slices, of a driver that nobody has."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._metadata: Obj = {"name": "bench-spare"}

    def make(self, ears: Ears) -> None:
        self._metadata = self._client.create(SLICES, self._body(ears))["metadata"]

    def put(self, ears: Ears) -> float:
        """Seconds that it takes to write it as the plugin's is now: with the taints of the fault
        before, which it does not have yet.
        """
        body = self._body(ears)
        began = time.perf_counter()
        stored = self._client.replace(SLICES, body)
        took = time.perf_counter() - began
        self._metadata = stored["metadata"]
        return took

    def _body(self, ears: Ears) -> Obj:
        spec = {**ears.largest()["spec"], "driver": SPARE}
        return {"metadata": self._metadata, "spec": spec}
