"""GPUs that are probed by a stand-in for CUDA, which answers as it is told to."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, cast

import pytest

from driver.core.geometry import Placement
from driver.core.health.judge import State
from driver.core.health.probe import (
    Outcome,
    Passed,
    ProbeTarget,
)
from driver.core.health.probing import Policy
from driver.core.health.signals import Need
from driver.core.ids import CdiId, ClaimUID, DeviceName, GpuUuid, PoolName
from driver.core.ledger import Entry, Holding
from driver.core.snapshot import ComputeFacts, GpuFacts, InstanceFacts
from driver.plugin.health.probes import Probes
from driver.plugin.preparing.gpu_locks import GpuLocks
from driver.plugin.supervise import Wakeup
from driver.state.thread_locks import ThreadLocks
from tests.plugin.health.shell import BOOT, ONE, Shell, fault
from tests.plugin.nodes import mig_gpu

PASSED = Passed(seconds=1.0)


class Prober:
    """Answers with `outcomes` in turn, the last one for ever; `during` happens inside a probe."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.outcomes = [*outcomes]
        self.probed: list[str] = []
        self.interrupted: list[GpuUuid | None] = []
        self.during = lambda: None
        self.on_interrupt: Callable[[], None] = lambda: None

    def probe(self, target: ProbeTarget) -> Outcome:
        self.probed.append(target.uuid)
        self.during()
        return self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]

    def interrupt(self, gpu: GpuUuid | None = None) -> None:
        self.interrupted.append(gpu)
        self.on_interrupt()


class AtOnce:
    """A pool whose work is done when it is submitted."""

    def submit(self, work: Any, *arguments: Any) -> Future[None]:
        work(*arguments)
        return Future()


class Bench:
    def __init__(self, *gpus: GpuFacts, outcomes: tuple[Outcome, ...] = (PASSED,)) -> None:
        self.shell = Shell(*gpus)
        self.prober = Prober(*outcomes)
        self.locks = GpuLocks(ThreadLocks(), patience=0)
        self.unused: list[GpuUuid] = []
        self.closed = False
        self.probes = Probes(
            self.shell.custody,
            self.shell.places,
            self.shell.hardware,
            self.prober,
            locks=self.locks,
            policy=Policy(),
            metrics=self.shell.metrics,
            unused=self._unused,
            wakeup=Wakeup(),
            closed=lambda: self.closed,
            clock=self.shell.clock,
            uptime=self.shell.uptime,
        )

    def _unused(self, gpu: GpuUuid) -> None:
        with pytest.raises(Exception, match="busy"), self.locks.held((gpu,), by="a claim"):
            pass
        self.unused.append(gpu)

    def look(self) -> float | None:
        return self.probes._start(cast("ThreadPoolExecutor", AtOnce()))

    def sick(self, name: str = "bad", need: Need = Need.PROBE, gi: int | None = None) -> None:
        self.shell.custody.take(fault(name, need, at=self.shell.now, gi=gi))
        self.shell.now += 1

    def claim(self, uuid: str, of: GpuUuid = ONE) -> None:
        holding = Holding(
            request="r",
            pool=PoolName("p"),
            device=DeviceName("d"),
            gpu=of,
            cdi_id=CdiId("c"),
        )
        entry = Entry(
            uid=ClaimUID("u"), namespace="ns", name="n", boot_id=BOOT, holdings=(holding,)
        )
        assert holding.uuid == uuid or uuid != of
        self.shell.entries[entry.uid] = entry

    def state(self) -> State:
        found = self.shell.judged.judgements.gpus.get(ONE)
        return found.state if found else State.READY


def cut(number: int, *instances: int) -> GpuFacts:
    """A GPU in MIG mode with these instances, each with one compute instance."""
    made = (
        InstanceFacts(
            id=each,
            profile_id=19,
            placement=Placement(start=each, size=1),
            compute=(ComputeFacts(id=0, uuid=f"MIG-{each}"),),
        )
        for each in instances
    )
    return mig_gpu(number, *made, enabled=True)
