"""What a source says about a device: the one form in which all of them speak.

Why it exists: kernel log, NVML, device nodes, DCGM and probes must be weighed together, so each
translates what it sees into these values, and none of them decides. A source that cannot tell says
so; silence is not health. Must not know any source.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from driver.core.ids import GpuUuid


class Source(StrEnum):
    """Who says it. The values are stored and shown."""

    KERNEL = "kernel-log"
    EVENTS = "nvml-events"
    POLL = "nvml-poll"
    NODES = "device-nodes"
    DCGM = "dcgm"
    PROBE = "probe"


class Family(StrEnum):
    """The three ways to look at a GPU."""

    EXECUTION = "execution"
    METRICS = "metrics"
    KERNEL = "kernel"


FAMILIES = {
    Source.KERNEL: Family.KERNEL,
    Source.EVENTS: Family.KERNEL,
    Source.POLL: Family.METRICS,
    Source.DCGM: Family.METRICS,
    Source.NODES: Family.EXECUTION,
    Source.PROBE: Family.EXECUTION,
}


class Need(StrEnum):
    """What a fault needs before the device may be used again, from nothing to most."""

    NOTHING = "nothing"
    """Of the application, or for information: never withholds."""
    PROBE = "probe"
    """Says nothing by itself; a probe decides."""
    WATCH = "watch"
    """Degraded: works, is shown, and is put right when the GPU is idle."""
    RESET = "reset"
    REBOOT = "reboot"
    OPERATOR = "operator"
    """A human decides, usually about replacing the board."""


STRENGTH: Final = {need: at for at, need in enumerate(Need)}
"""From nothing to most."""


def stronger(one: Need, other: Need) -> Need:
    return max(one, other, key=STRENGTH.__getitem__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What it is about: a compute instance, a GPU instance, a GPU, or (no `gpu`) the whole node.

    `gi` and `ci` are NVML's ids, which are used again: they mean what they meant at that time.
    """

    gpu: GpuUuid | None = None
    gi: int | None = None
    ci: int | None = None


NODE = Scope()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something is wrong. `name`: a short token that is also a taint's value, such as `xid-79` or
    `row-remap-failure`. `place`: where on the device, to tell repeats at one place from others.
    `injected`: a test wrote it; it is shown and never withholds.
    """

    source: Source
    scope: Scope
    name: str
    need: Need
    at: float
    detail: str = ""
    place: str = ""
    injected: bool = False
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Well:
    """The state called `name` was looked at and is in order: positive, newer evidence."""

    source: Source
    scope: Scope
    name: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CannotTell:
    """`name` could not be looked at: neither healthy nor sick."""

    source: Source
    scope: Scope
    name: str
    at: float
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetSeen:
    """The GPU was reset: everything that a reset puts right may now be proved. `by`: who says so,
    where the GPU itself shows no sign of it.
    """

    gpu: GpuUuid
    at: float
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePassed:
    """A program ran on the device, computed, and the result was right."""

    scope: Scope
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """An operator takes responsibility for one item of evidence on one board, by serial number."""

    gpu: GpuUuid
    name: str
    serial: str
    by: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Overruled:
    """The GPU's own advice, read long enough after the fault to be up to date, asks for no reset
    although the catalogue does, for an error that is known to drive it: so a probe decides.
    """

    source: Source
    scope: Scope
    name: str
    at: float


Signal = Fault | Well | CannotTell | ResetSeen | ProbePassed | Acknowledged | Overruled
"""`at` everywhere: seconds since the epoch, by the node's clock, when it was observed."""
