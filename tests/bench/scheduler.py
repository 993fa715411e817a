"""What a pod with a claim costs kube-scheduler, with our slices and with NVIDIA's.

Why it exists: a driver decides by its slices how much work each pod is. Measured is the CPU time of
an unmodified scheduler process, which hardly depends on what else the machine does; the two layouts
are measured in turns, each on a control plane of its own, with the same pods in the same order.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Sequence
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
        theirs, ours = (cost(layout, scenario) for layout in (NVIDIA, OURS))
        results[f"scheduler_cpu_ratio_{scenario.name}"] = Result(
            value=ours.cpu_ms / theirs.cpu_ms,
            goal=scenario.goal,
            unit="x",
            detail=f"{ours} against {theirs}",
        )
    return results


def cost(layout: Layout, scenario: Scenario) -> Cost:
    with ControlPlane.start() as plane:
        client = bare.connect(plane)
        publish(client, layout, scenario)
        names = claims(client, wanted(scenario))
        settle(plane.scheduler)
        before, began = plane.scheduler.cpu_seconds(), time.monotonic()
        bare.make_pods(client, names)
        bare.await_objects(
            client, PODS, lambda pods: bare.bound(pods) == scenario.pods, timeout=PATIENCE
        )
        spent, took = plane.scheduler.cpu_seconds() - before, time.monotonic() - began
        client.close()
    found = Cost(cpu_ms=spent / scenario.pods * 1000, pods_per_second=scenario.pods / took)
    print(f"{scenario.name}, {layout.driver}: {found}", file=sys.stderr, flush=True)
    return found


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
