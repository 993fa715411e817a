"""What a pod with a claim costs kube-scheduler, with our slices and with NVIDIA's.

Why it exists: a driver decides by its slices how much work each pod is. Measured is the CPU time of
an unmodified scheduler process. Each layout has a control plane of its own and gets the same pods
in the same order; they take turns in batches, so that the machine's moods meet both.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from api.resource.codec import NodeOwner, decode_stored
from driver.kube.client import Client
from driver.ports.resources import PODS, resource_slices
from hack.controlplane import ControlPlane
from hack.controlplane.component import Component
from tests.bench import bare, report
from tests.bench.bare import WHOLE
from tests.bench.layouts import NVIDIA, OURS, SMALLEST, Layout
from tests.bench.report import Result

SLICES: Final = resource_slices()
MIX: Final = (SMALLEST.name, "2g.20gb", "3g.40gb", "4g.40gb", WHOLE)
QUIET: Final = 0.05
"""Cores; below it the scheduler has taken in what was written."""
BATCH: Final = 30
"""Pods."""
PATIENCE: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """`used`: GPUs of each node that hold seven 1g each before the pods come."""

    name: str
    nodes: int
    pods: int
    kinds: tuple[str, ...]
    used: int
    goal: float


SCENARIOS: Final = (
    Scenario(name="1g", nodes=100, pods=300, kinds=MIX[:1], used=0, goal=0.42),
    Scenario(name="mix", nodes=100, pods=300, kinds=MIX, used=0, goal=0.70),
    Scenario(name="half", nodes=60, pods=180, kinds=MIX, used=4, goal=0.30),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    cpu_ms: float
    pods_per_second: float

    def __str__(self) -> str:
        return f"{self.cpu_ms:.0f} ms a pod ({self.pods_per_second:.1f} pods/s)"


def wanted(scenario: Scenario) -> list[str]:
    """The kind of each pod: every kind equally often, in an order that is always the same."""
    each = [scenario.kinds[i % len(scenario.kinds)] for i in range(scenario.pods)]
    random.Random(scenario.name).shuffle(each)
    return each


def measure() -> dict[str, Result]:
    results = {}
    for scenario in SCENARIOS:
        theirs, ours = costs(scenario, NVIDIA, OURS)
        results[f"scheduler_cpu_ratio_{scenario.name}"] = Result(
            value=ours.cpu_ms / theirs.cpu_ms,
            goal=scenario.goal,
            unit="x",
            detail=f"{ours} against {theirs}",
        )
    return results


def costs(scenario: Scenario, *layouts: Layout) -> list[Cost]:
    """Of each layout, in turns."""
    with ExitStack() as stack:
        clusters = [Cluster(stack.enter_context(ControlPlane.start()), each) for each in layouts]
        for cluster in clusters:
            stack.callback(cluster.client.close)
            publish(cluster.client, cluster.layout, scenario)
            cluster.names = claims(cluster.client, wanted(scenario))
        for cluster in clusters:
            settle(cluster.scheduler)
        for first in range(0, scenario.pods, BATCH):
            for cluster in clusters:
                cluster.schedule(first, min(first + BATCH, scenario.pods))
        found = [cluster.cost() for cluster in clusters]
    for layout, cost in zip(layouts, found, strict=True):
        print(f"{scenario.name}, {layout.driver}: {cost}", file=sys.stderr, flush=True)
    return found


class Cluster:
    """One layout on a control plane of its own, and what its pods have cost so far."""

    def __init__(self, plane: ControlPlane, layout: Layout) -> None:
        self.client = bare.connect(plane)
        self.scheduler = plane.scheduler
        self.layout = layout
        self.names: list[str] = []
        self._cpu = self._wall = 0.0

    def schedule(self, first: int, end: int) -> None:
        """The pods from `first` on, until all before `end` are bound."""
        cpu, began = self.scheduler.cpu_seconds(), time.monotonic()
        bare.make_pods(self.client, self.names[first:end])
        bare.await_objects(
            self.client, PODS, lambda pods: bare.bound(pods) == end, timeout=PATIENCE
        )
        self._cpu += self.scheduler.cpu_seconds() - cpu
        self._wall += time.monotonic() - began

    def cost(self) -> Cost:
        pods = len(self.names)
        return Cost(cpu_ms=self._cpu / pods * 1000, pods_per_second=pods / self._wall)


def publish(client: Client, layout: Layout, scenario: Scenario) -> None:
    """Nodes, slices, classes, and the claims of what is in use."""
    uids = bare.make_nodes(client, [f"node-{n:03d}" for n in range(scenario.nodes)])
    bare.make_classes(client, layout.driver, [*MIX])
    for name, uid in uids.items():
        for body in layout.slices(NodeOwner(name=name, uid=uid), scenario.used):
            stored = client.create(SLICES, body)
            # A server drops what a feature gate hides; then something else would be measured.
            if stored["spec"] != body["spec"]:
                kept = decode_stored(stored).content
                raise RuntimeError(f"the server stored another slice than was sent: {kept}")
        for device in layout.held(name, scenario.used):
            bare.hold(
                client,
                f"{name}-{device}",
                SMALLEST.name,
                driver=layout.driver,
                pool=layout.pool(name),
                device=device,
            )


def claims(client: Client, kinds: Sequence[str]) -> list[str]:
    names = [f"pod-{n:03d}" for n in range(len(kinds))]
    for name, kind in zip(names, kinds, strict=True):
        client.create(bare.CLAIMS, bare.claim(name, kind))
    return names


def settle(scheduler: Component) -> None:
    """Until it has nothing left to do; only its use of CPU tells."""
    tick, deadline = threading.Event(), time.monotonic() + PATIENCE
    last = scheduler.cpu_seconds()
    while time.monotonic() < deadline:
        tick.wait(1.0)
        now = scheduler.cpu_seconds()
        if now - last < QUIET:
            return
        last = now
    raise TimeoutError(f"the scheduler was not quiet within {PATIENCE:.0f} s")


if __name__ == "__main__":
    report.write("bench-scheduler", measure())
