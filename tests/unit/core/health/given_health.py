"""A node to hold things against: four GPUs, one of them cut, and the words for what happens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from driver.core.health.evidence import begun, take
from driver.core.health.items import Evidence, Identity
from driver.core.health.judge import JudgeSettings, Subject, judge
from driver.core.health.judgement import Judgement, Judgements, State
from driver.core.health.signals import (
    NODE,
    Acknowledged,
    CannotTell,
    Fault,
    Need,
    Overruled,
    ProbePassed,
    ResetSeen,
    Scope,
    Signal,
    Source,
    Well,
)
from driver.core.ids import DeviceName, GpuUuid

GPUS = tuple(GpuUuid(f"GPU-{n}") for n in range(4))
G0, G1, G2, G3 = GPUS
PART = Scope(gpu=G0, gi=1, ci=0)
"""A partition of two slots at 0 on the first GPU; another one, of gi 2, is next to it."""
IDENTITY = Identity(
    serials={gpu: f"serial-{gpu}" for gpu in GPUS}, places={(G0, 1): 0b0011, (G0, 2): 0b1100}
)
SUBJECTS = (
    *(Subject(device=DeviceName(f"whole-{n}"), gpu=gpu) for n, gpu in enumerate(GPUS)),
    Subject(device=DeviceName("part-0-0"), gpu=G0, slots=0b0011),
    Subject(device=DeviceName("part-0-2"), gpu=G0, slots=0b1100),
    Subject(device=DeviceName("small-0-1"), gpu=G0, slots=0b0010),
)
SETTINGS = JudgeSettings()
BOOT = "boot-1"


def whole(gpu: GpuUuid | None) -> Scope:
    return Scope(gpu=gpu) if gpu else NODE


def fault(
    name: str,
    need: Need = Need.RESET,
    at: float = 0.0,
    *,
    on: GpuUuid | Scope | None = G0,
    by: Source = Source.KERNEL,
    injected: bool = False,
    place: str = "",
    count: int = 1,
) -> Fault:
    scope = on if isinstance(on, Scope) else whole(on)
    return Fault(
        source=by,
        scope=scope,
        name=name,
        need=need,
        at=at,
        injected=injected,
        place=place,
        count=count,
    )


def well(
    name: str, at: float, *, on: GpuUuid | Scope | None = G0, by: Source = Source.POLL
) -> Well:
    return Well(source=by, scope=on if isinstance(on, Scope) else whole(on), name=name, at=at)


def cannot_tell(
    name: str, at: float, *, on: GpuUuid | Scope | None = G0, by: Source = Source.POLL
) -> CannotTell:
    scope = on if isinstance(on, Scope) else whole(on)
    return CannotTell(source=by, scope=scope, name=name, at=at, detail="timed out")


def overruled(at: float, name: str = "bad", *, by: Source = Source.KERNEL) -> Overruled:
    return Overruled(source=by, scope=Scope(gpu=G0), name=name, at=at)


def reset(at: float, on: GpuUuid = G0) -> ResetSeen:
    return ResetSeen(gpu=on, at=at)


def passed(at: float, on: GpuUuid | Scope = G0) -> ProbePassed:
    return ProbePassed(scope=on if isinstance(on, Scope) else Scope(gpu=on), at=at)


def ack(name: str, at: float, *, on: GpuUuid = G0, serial: str | None = None) -> Acknowledged:
    number = serial if serial is not None else f"serial-{on}"
    return Acknowledged(gpu=on, name=name, serial=number, by="ann", at=at)


@dataclass
class Node:
    """Lives through what happens; the clock is the newest time that it was told."""

    evidence: Evidence = field(default_factory=Evidence)
    boot: str = BOOT
    identity: Identity = IDENTITY
    now: float = 0.0

    def live(self, *signals: Signal) -> Node:
        for signal in signals:
            self.now = max(self.now, signal.at)
            self.evidence = take(
                self.evidence, signal, boot_id=self.boot, now=self.now, identity=self.identity
            )
        return self

    def reboot(self, boot: str = "boot-2") -> Node:
        self.boot = boot
        self.evidence = begun(self.evidence, boot_id=boot, now=self.now)
        return self

    def at(self, now: float) -> Judgements:
        return judge(self.evidence, SUBJECTS, now, SETTINGS)

    def device(self, name: str = "whole-0", now: float | None = None) -> Judgement:
        return self.at(self.now if now is None else now).devices[DeviceName(name)]

    def state(self, name: str = "whole-0") -> State:
        return self.device(name).state

    def names(self) -> set[str]:
        return {item.name for item in self.evidence.items.values()}


def lived(signals: Iterable[Signal]) -> Node:
    return Node().live(*signals)


def without_gpu(gpu: GpuUuid) -> Identity:
    serials = {each: serial for each, serial in IDENTITY.serials.items() if each != gpu}
    return replace(IDENTITY, serials=serials)
