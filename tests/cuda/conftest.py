"""Real children on simulated GPUs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from driver.core.health.probe import Outcome, ProbeTarget
from driver.core.health.signals import Scope
from driver.core.ids import GpuUuid
from driver.cuda.prober import Limits, Prober
from driver.cuda.process import Child, ChildProcess
from hack.simcuda.build import library_path
from hack.simnvml.kit import Machine
from hack.simnvml.testing import make_machine

__all__ = ["make_machine"]

QUICK = Limits(deadline=10.0, grace=1.0)


def target(machine: Machine, slot: int = 0) -> ProbeTarget:
    uuid = machine.gpu(slot).uuid
    return ProbeTarget(scope=Scope(gpu=GpuUuid(uuid)), uuid=uuid)


@dataclass(frozen=True, slots=True)
class Node:
    machine: Machine
    make: Callable[..., Prober]

    def probe(self, slot: int = 0, **limits: float) -> Outcome:
        return self.make(**limits).probe(target(self.machine, slot))


@pytest.fixture
def node(make_machine) -> Iterator[Node]:
    library = library_path()
    made: list[Prober] = []

    def make(*, start: Callable[..., Child] = ChildProcess, **limits) -> Prober:
        made.append(Prober(library=lambda: library, limits=replace(QUICK, **limits), start=start))
        return made[-1]

    machine = make_machine("h100x2")
    yield Node(machine, make)
    machine.clear_rules()
    for prober in made:
        prober.interrupt()
        assert prober.abandoned() == {}


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def zombies() -> list[str]:
    """Children of this process that have ended and were not reaped."""
    ours = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [pid for pid in ours if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"]
