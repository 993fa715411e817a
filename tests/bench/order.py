"""Does the published order follow allocations, with the real scheduler and the real API server?

Why it exists: an order that is right on paper and late in the cluster packs badly, and only a real
scheduler, with its own cache of slices and claims, can be late. Pods with claims come one a second
and live exponentially; there is no kubelet, so what it does at the end of a pod is done here.
"""

from __future__ import annotations

import heapq
import queue
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from driver.core.errors import KubeNotFound
from driver.core.ids import DeviceName
from driver.core.inventory import Inventory, build_inventory
from driver.core.packing import Policy
from driver.kube.client import Client
from driver.kube.reflector import Reflector
from driver.kube.watching import Query
from driver.ports.kube import Change, Resource
from driver.ports.resources import PODS, resource_slices
from hack.controlplane import ControlPlane
from hack.fakekubelet import Claim
from tests.bench import bare, report
from tests.bench.bare import CLAIMS, NAMESPACE, WHOLE
from tests.bench.fidelity import Pools, Taken, fidelity, gaps, lags, percentile
from tests.bench.layouts import snapshot
from tests.bench.livenode import DRIVER, LiveNode
from tests.bench.report import AT_LEAST, Result

NODE: Final = "node-1"
SLICES: Final = resource_slices()
KINDS: Final = ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", WHOLE)
ALLOCATIONS: Final = 240
EVERY: Final = 1.0
"""Seconds from one pod to the next."""
LIFE: Final = 8.2
"""Seconds on average: half of the eight GPUs' compute is in use then."""
SEED: Final = 11
PATIENCE: Final = 30.0


@dataclass(order=True, slots=True)
class Due:
    """Something to do at `at`: a pod comes, or the pod of `name` ends."""

    at: float
    name: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """`device`: what a claim got, None: it gave it back. `refused`: nothing is free for a pod."""

    name: str
    device: str | None = None
    refused: bool = False


class Ears:
    """What the API server tells, in its order: a log to judge by, and a queue to act by."""

    def __init__(self) -> None:
        self.taken: list[Taken] = []
        self.pools = Pools()
        self.queue: queue.Queue[Heard | Exception] = queue.Queue()

    def claim(self, change: Change) -> None:
        before, now = device_of(change.old), device_of(change.new)
        if before == now:
            return
        name = change.key[1]
        if before is not None and now is not None:
            self.fail(f"claim {name} changed from {before} to {now} without a release")
            return
        device = None if now is None else DeviceName(now)
        self.taken.append(Taken(claim=name, device=device, at=time.monotonic()))
        self.queue.put(Heard(name=name, device=now))

    def slice(self, change: Change) -> None:
        pool = change.new["spec"]["pool"] if change.new else None
        seen = (pool["generation"], pool["resourceSliceCount"]) if pool else None
        self.pools.see(change.key[1], seen)

    def fail(self, reason: str) -> None:
        """What was heard cannot be judged; the benchmark's own thread raises it."""
        self.queue.put(RuntimeError(reason))

    def pod(self, change: Change) -> None:
        conditions = (change.new or {}).get("status", {}).get("conditions", ())
        if any(c.get("reason") == "Unschedulable" for c in conditions):
            self.queue.put(Heard(name=change.key[1], refused=True))


def device_of(claim: dict[str, Any] | None) -> str | None:
    results = (
        (claim or {}).get("status", {}).get("allocation", {}).get("devices", {}).get("results")
    )
    return str(results[0]["device"]) if results else None


@contextmanager
def listening(client: Client) -> Iterator[Ears]:
    ears, stop = Ears(), threading.Event()
    threads = []
    for resource, heard in ((CLAIMS, ears.claim), (SLICES, ears.slice), (PODS, ears.pod)):
        broken = f"the watch of {resource.plural} broke and events are missing; run again"
        reflector = Reflector(client, Query(resource=resource), listed=partial(ears.fail, broken))
        reflector.subscribe(heard)
        threads.append(threading.Thread(target=reflector.run, args=(stop,), name=resource.plural))
        threads[-1].start()
        if not reflector.wait_synced(PATIENCE):
            raise TimeoutError(f"no list of {resource.plural} within {PATIENCE:.0f} s")
    try:
        yield ears
    finally:
        stop.set()
        for thread in threads:
            thread.join()


class Traffic:
    """Pods that come and go. `refused` of them found nothing free, and left."""

    def __init__(self, client: Client, node: LiveNode, ears: Ears, source: random.Random) -> None:
        self._client, self._node, self._ears, self._random = client, node, ears, source
        self._prepared: dict[str, Claim] = {}
        self._due: list[Due] = []
        self._came = 0
        self.allocated = Counter[str]()
        self.refused: set[str] = set()

    def run(self, allocations: int) -> None:
        began = time.monotonic()
        self._due = [Due(at=began)]
        while self.allocated.total() < allocations:
            if time.monotonic() - began > allocations * EVERY * 2 + PATIENCE:
                raise TimeoutError(f"only {self.allocated} of {allocations} claims got a device")
            rest = self._due[0].at - time.monotonic()
            try:
                heard = self._ears.queue.get(timeout=max(rest, 0))
            except queue.Empty:
                self._do(heapq.heappop(self._due))
            else:
                self._hear(heard)

    def _do(self, due: Due) -> None:
        if due.name:
            self._end(due.name)
            return
        heapq.heappush(self._due, Due(at=due.at + EVERY))
        kind = self._random.choice(KINDS)
        self._came += 1
        name = f"pod-{self._came:04d}-{bare.class_name(kind).replace('.', '-')}"
        self._client.create(CLAIMS, bare.claim(name, kind))
        self._client.create(PODS, bare.pod(name))

    def _hear(self, heard: Heard | Exception) -> None:
        if isinstance(heard, Exception):
            raise heard
        if heard.refused:
            self._refuse(heard.name)
        elif heard.device is None:
            self._gone(CLAIMS, heard.name)
        elif heard.name not in self.refused:
            self._start(heard.name)

    def _refuse(self, name: str) -> None:
        """It leaves. Told again, or told late: nothing; one that was placed meanwhile stays."""
        if name in self._prepared or name in self.refused:
            return
        if self._gone(PODS, name):
            self.refused.add(name)
            self._gone(CLAIMS, name)

    def _start(self, name: str) -> None:
        life = self._random.expovariate(1 / LIFE)
        heapq.heappush(self._due, Due(at=time.monotonic() + life, name=name))
        uid = self._client.get(CLAIMS, name, namespace=NAMESPACE)["metadata"]["uid"]
        claim = Claim(namespace=NAMESPACE, name=name, uid=uid)
        self._node.prepare(claim)
        self._prepared[name] = claim
        self.allocated[name.partition("-mig-")[2] or WHOLE] += 1

    def _end(self, name: str) -> None:
        """As a kubelet: unprepare, then let the pod go; the controller takes the claim back."""
        self._node.unprepare(self._prepared.pop(name))
        self._gone(PODS, name)

    def _gone(self, resource: Resource, name: str) -> bool:
        with suppress(KubeNotFound):
            self._client.delete(resource, name, namespace=NAMESPACE)
            return True
        return False


def measure() -> dict[str, Result]:
    with ControlPlane.start() as plane:
        client = bare.connect(plane)
        bare.make_nodes(client, [NODE])
        bare.make_classes(client, DRIVER, [*KINDS])
        with listening(client) as ears, LiveNode(NODE, plane.kubeconfig) as node:
            node.start()
            found = inventory(client)
            traffic = Traffic(client, node, ears, random.Random(SEED))
            traffic.run(ALLOCATIONS)
            counted = node.metric("tessera_allocations_total")
        client.close()
    print(
        f"allocated {dict(traffic.allocated)}, refused {len(traffic.refused)}; the plugin counted"
        f" {counted}",
        file=sys.stderr,
    )
    return judge(found, ears, counted)


def inventory(client: Client) -> Inventory:
    """What the plugin must have found: its slices hold exactly these devices."""
    found = build_inventory(snapshot(NODE))

    def complete(slices: list[dict[str, Any]]) -> bool:
        names = {d["name"] for s in slices for d in s["spec"].get("devices", ())}
        return names == set(found.devices)

    bare.await_objects(client, SLICES, complete, timeout=PATIENCE)
    return found


def judge(found: Inventory, ears: Ears, counted: dict[str, float]) -> dict[str, Result]:
    if ears.pools.incomplete:
        raise RuntimeError(f"the pool was incomplete {ears.pools.incomplete} times")
    behind = lags(found, ears.taken, Policy.PACKED)
    spread = ", ".join(f"{n} at lag {lag}" for lag, n in sorted(Counter(behind).items()))
    late = [gap for lag, gap in zip(behind, gaps(ears.taken), strict=True) if lag]
    after = ", ".join(f"{gap * 1000:.0f}" for gap in sorted(late))
    plugin = ", ".join(f"{labels}: {value:.0f}" for labels, value in sorted(counted.items()))
    return {
        "order_fidelity": Result(
            value=fidelity(behind),
            goal=0.99,
            unit="",
            sense=AT_LEAST,
            detail=f"{len(ears.taken)} events, {ears.pools.writes} slices written; {spread};"
            f" the late ones {after} ms after the event before; the plugin's own count {plugin}",
        ),
        "order_lag_p99_events": Result(
            value=percentile(behind, 0.99), goal=1, unit="events", detail="no incomplete pool"
        ),
    }


if __name__ == "__main__":
    report.write("bench-order", measure())
