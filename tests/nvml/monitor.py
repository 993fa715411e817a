"""Short forms for tests of the health sources over a simulated machine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from driver.core.health.signals import CannotTell, Fault, Need, ResetSeen, Signal, Well
from driver.core.ids import GpuUuid
from driver.core.snapshot import PciAddress
from driver.nvml.health import Around, NvmlPoll
from driver.plugin.supervise import Wakeup
from tests.nvml.conftest import Node


@dataclass
class Monitor:
    """A poll of a node, by a clock that a test moves."""

    node: Node
    now: float = 1000.0
    bus: tuple[PciAddress, ...] = ()
    held: set[str] = field(default_factory=set)
    published: dict[GpuUuid, PciAddress] = field(default_factory=dict)
    hang_after: float = 10.0
    remade: int = 0

    def __post_init__(self) -> None:
        self.poll = NvmlPoll(
            self.node.library,
            around=Around(
                known=lambda: self.published,
                bus=lambda: self.bus,
                held=lambda gpu: gpu in self.held,
            ),
            sink=lambda *_: None,
            alarm=Wakeup(),
            hang_after=self.hang_after,
            on_gpus=self._remake,
            clock=lambda: self.now,
        )

    def _remake(self) -> None:
        self.remade += 1

    def look(self, *, after: float = 5.0) -> Seen:
        self.now += after
        return Seen(self.poll.look())


@dataclass
class Seen:
    signals: list[Signal]

    def faults(self, gpu: str | None = None) -> dict[str, Need]:
        return {s.name: s.need for s in self.about(gpu) if isinstance(s, Fault)}

    def well(self, gpu: str | None = None) -> set[str]:
        return {s.name for s in self.about(gpu) if isinstance(s, Well)}

    def unknown(self, gpu: str | None = None) -> set[str]:
        return {s.name for s in self.about(gpu) if isinstance(s, CannotTell)}

    def resets(self) -> list[str]:
        return [s.gpu for s in self.signals if isinstance(s, ResetSeen)]

    def detail(self, name: str) -> str:
        (text,) = [
            s.detail for s in self.signals if isinstance(s, Fault | CannotTell) and s.name == name
        ]
        return text

    def about(self, gpu: str | None) -> Iterable[Fault | Well | CannotTell]:
        for signal in self.signals:
            if isinstance(signal, Fault | Well | CannotTell) and signal.scope.gpu == gpu:
                yield signal
