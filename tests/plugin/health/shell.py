"""The health shell over memory: two GPUs that are whole, one clock, and no threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from driver.config.catalogue import load_catalogue
from driver.core.choices import Choices
from driver.core.errors import StateError
from driver.core.health.evidence import begun
from driver.core.health.items import Evidence
from driver.core.health.judge import JudgeSettings
from driver.core.health.readings.values import Failed, GpuReadings, NodeReadings
from driver.core.health.signals import Fault, Need, Scope, Source
from driver.core.ids import ClaimUID, DeviceName, GpuUuid, PoolName
from driver.core.inventory import build_inventory
from driver.core.ledger import Entry
from driver.core.snapshot import GpuFacts
from driver.plugin.health.condition import Condition
from driver.plugin.health.custody import Custody
from driver.plugin.health.judged import Judged
from driver.plugin.health.kernel import KernelWitness
from driver.plugin.health.monitor import Monitor
from driver.plugin.health.places import Places
from driver.plugin.health.told import Told
from driver.plugin.node import Hardware
from driver.plugin.supervise import Wakeup
from driver.ports.events import Reason
from driver.ports.health import RawRecord
from tests.plugin.nodes import mig_snapshot
from tests.plugin.stubs import DRIVER, device, gpu

BOOT = "boot-1"
CATALOGUE = load_catalogue(None)
ONE, TWO = gpu(1).uuid, gpu(2).uuid
FIRST, SECOND = DeviceName(device(1)), DeviceName(device(2))


@dataclass
class MemoryStore:
    """`broken`: why nothing can be written."""

    kept: Evidence = field(default_factory=Evidence)
    broken: str = ""
    saves: int = 0

    def load(self, *, boot_id: str, now: float) -> Evidence:
        return begun(self.kept, boot_id=boot_id, now=now)

    def save(self, evidence: Evidence, *, now: float) -> float | None:
        if self.broken:
            raise StateError(f"{self.broken}, at {now:.0f}")
        self.kept, self.saves = evidence, self.saves + 1
        return None


class Counts:
    """All the metrics of the shell."""

    def __init__(self) -> None:
        self.states: dict[str, int] = {}
        self.count: Counter[str] = Counter()

    def kernel_record(self, kind: str, count: int = 1) -> None:
        self.count[kind] += count

    def probed(self, outcome: str) -> None:
        self.count[outcome] += 1

    def health_fault(self, source: str, count: int = 1) -> None:
        self.count[source] += count

    def health_changed(self, state: str) -> None:
        self.count[state] += 1

    def set_gpu_states(self, states: Mapping[str, int]) -> None:
        self.states = dict(states)


class Shell:
    """`now` is both clocks, until the time of day is set back. `store`: what the plugin before has
    left.
    """

    def __init__(
        self,
        *gpus: GpuFacts,
        store: MemoryStore | None = None,
        leads: bool = True,
        known: bool = True,
        debounce: float = 60.0,
    ) -> None:
        self.now = 1000.0
        self.set_back = 0.0
        self.store = store or MemoryStore()
        self.hardware = Hardware()
        self.entries: dict[ClaimUID, Entry] = {}
        self.metrics = Counts()
        self.events: list[tuple[Reason, str]] = []
        self.conditions: list[Condition] = []
        self.taint_changes: list[float] = []
        self.looks = 0
        self.gpus = gpus or (gpu(1), gpu(2))
        self.places = Places(
            self.hardware, entries=lambda: self.entries, boot_id=BOOT, clock=self.uptime
        )
        self.custody = Custody(
            self.store,
            boot_id=BOOT,
            identity=self.places.identity,
            gpus=self.places.gpus,
            metrics=self.metrics,
            clock=self.clock,
            uptime=self.uptime,
        )
        self.hardware.subscribe(self.custody.found)
        self.judged = Judged(
            driver=DRIVER, pool=PoolName("pool"), clock=self.uptime, wall=self.clock
        )
        self.judged.subscribe_taints(lambda: self.taint_changes.append(self.now))
        self.told = Told(
            self.judged,
            self.hardware,
            known=lambda: self.custody.evidence.gpus,
            tell=lambda reason, text: self.events.append((reason, text)),
            condition=self.conditions.append,
            metrics=self.metrics,
        )
        self.monitor = Monitor(
            self.custody,
            self.hardware,
            self.judged,
            settings=JudgeSettings(debounce=debounce),
            wakeup=Wakeup(),
            clock=self.clock,
            uptime=self.uptime,
        )
        self.kernel = KernelWitness(
            self.custody,
            self.places,
            CATALOGUE,
            look_soon=self._look_soon,
            metrics=self.metrics,
            wakeup=Wakeup(),
            clock=self.clock,
            uptime=self.uptime,
        )
        self.monitor.judge()
        if leads:
            self.custody.lead()
            self.told.lead()
        if known:
            self.find(*self.gpus)

    def clock(self) -> float:
        return self.now - self.set_back

    def uptime(self) -> float:
        return self.now

    def _look_soon(self) -> None:
        self.looks += 1

    def find(self, *gpus: GpuFacts) -> None:
        self.hardware.found(build_inventory(mig_snapshot(*gpus), Choices()))

    def wait(self, seconds: float) -> int:
        """Time passes, and the monitor does what comes due; how often it had to."""
        end, steps = self.now + seconds, 0
        while (rest := self.monitor.step()) is not None and self.now + rest <= end:
            self.now += rest
            steps += 1
            assert steps < 1000, "a loop that does not rest"
        self.now = end
        return steps

    def line(self, text: str, *, facility: int = 0) -> bool:
        """The kernel writes it; whether it weighs."""
        data = f"{facility << 3 | 3},1,{int(self.now)},-;{text}\n".encode()
        return self.kernel.record(RawRecord(data=data, at=self.clock()))

    def xid(self, code: int, number: int = 1, more: str = "pid=7, name=python3, text") -> bool:
        return self.line(f"NVRM: Xid (PCI:{gpu(number).pci!s:.10}): {code}, {more}")

    def read(self, action: int = 0, *, failed: Failed | None = None) -> None:
        """The poll looks; it finds this action on every GPU, or `failed`."""
        got = {
            g.uuid: failed or GpuReadings(gpu=g.uuid, at=self.clock(), recovery=action)
            for g in self.gpus
        }
        self.kernel.looked(NodeReadings(at=self.clock(), branch=580, gpus=got))

    def taints(self) -> dict[str, list[str]]:
        return {
            str(name): [str(t.value) for t in each] for name, each in self.judged.taints().items()
        }


def fault(
    name: str = "xid-79",
    need: Need = Need.REBOOT,
    *,
    at: float,
    on: GpuUuid | None = ONE,
    gi: int | None = None,
) -> Fault:
    return Fault(source=Source.KERNEL, scope=Scope(gpu=on, gi=gi), name=name, need=need, at=at)
