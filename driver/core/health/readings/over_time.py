"""Readings that mean something only beside earlier ones: rates, shares of time, what was there.

Why it exists: a lifetime counter, one slow moment or a link that never was is no fault. So each GPU
has a short history, which goes in and comes out of every judgement as a value.

What could not be read, or was not asked, leaves the history as it is.

Must not know NVML, the clock: times are those of the looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from driver.core.health.readings.state import Finding, found
from driver.core.health.readings.unread import JOINING
from driver.core.health.readings.values import GpuReadings, ModePair, value
from driver.core.health.signals import CannotTell, Need, Scope, Signal, Source

LINK_ERRORS_PER_SECOND: Final = 100.0
HELD_BACK_SHARE: Final = 0.6
MIN_LOOKS: Final = 5
MEBIBYTE: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds, and bytes. `fabric`: how long a GPU may take to join its NVLink fabric; `clocks`:
    over what time the share is taken; `memory`: what may be in use with nobody there, for `leak`
    seconds.
    """

    fabric: float = 300.0
    clocks: float = 600.0
    memory: int = 1024 * MEBIBYTE
    leak: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What earlier looks at one GPU left behind."""

    links_seen: frozenset[int] = frozenset()
    counted_at: float = 0.0
    link_errors: Mapping[int, int] = field(default_factory=dict)
    link_failures: Mapping[int, int] = field(default_factory=dict)
    clock_looks: tuple[tuple[float, bool], ...] = ()
    fabric_since: float | None = None
    leak_since: float | None = None


def weigh_times(
    look: GpuReadings, history: History, limits: Limits
) -> tuple[list[Signal], History]:
    """What this look says in the light of earlier ones, and what the next one is to know."""
    links, history = _links(look, history)
    errors, history = _link_errors(look, history)
    failures, history = _link_failures(look, history)
    clocks, history = _clocks(look, history, limits)
    fabric, history = _fabric(look, history, limits)
    memory, history = _memory(look, history, limits)
    return [*links, *errors, *failures, *clocks, *fabric, *memory], history


def _told(look: GpuReadings, finding: Finding) -> list[Signal]:
    return [finding.signal(look.gpu, look.at)]


def _links(look: GpuReadings, history: History) -> tuple[list[Signal], History]:
    """A link is expected if it was up before; behind switches, all are. A card that could have
    links, but never had one up, has no bridge. With MIG on, links are out of use.
    """
    links = value(look.links)
    if not links or (isinstance(look.mig, ModePair) and look.mig.current):
        return [], history
    switched = look.fabric is not None
    seen = history.links_seen | {number for number, up in links.items() if up}
    expected = seen | (links.keys() if switched else frozenset())
    down = sorted(number for number in expected if not links.get(number, False))
    if not expected:
        return [], history
    finding = found(
        "nvlink-down",
        Need.RESET if switched or len(down) == len(expected) else Need.WATCH,
        f"{len(down)} of {len(expected)} NVLinks are down: {_numbers(down)}",
        when=bool(down),
        place=_numbers(down),
    )
    return _told(look, finding), replace(history, links_seen=frozenset(seen))


def _link_errors(look: GpuReadings, history: History) -> tuple[list[Signal], History]:
    """By rate alone: what a counter has come to over the board's life says nothing."""
    counts = value(look.link_errors)
    if not counts:
        return [], history
    seconds = look.at - history.counted_at
    before = history.link_errors
    history = replace(history, counted_at=look.at, link_errors=counts)
    if not before or seconds <= 0:
        return [], history
    rates = {n: (count - before[n]) / seconds for n, count in counts.items() if n in before}
    bad = sorted(n for n, rate in rates.items() if rate > LINK_ERRORS_PER_SECOND)
    finding = found(
        "nvlink-errors",
        Need.WATCH,
        f"up to {max(rates.values(), default=0):.0f} errors a second on NVLinks {_numbers(bad)}",
        when=bool(bad),
        place=_numbers(bad),
    )
    return _told(look, finding), history


def _link_failures(look: GpuReadings, history: History) -> tuple[list[Signal], History]:
    """Each one is a link that was down for a moment; whether it stays down, its state says."""
    counts = value(look.link_failures)
    if not counts:
        return [], history
    before = history.link_failures
    history = replace(history, link_failures=counts)
    if not before:
        return [], history
    bad = sorted(n for n, count in counts.items() if count > before.get(n, count))
    text = f"recovering NVLinks {_numbers(bad)} failed since the last look"
    finding = found("nvlink-recovery", Need.WATCH, text, when=bool(bad), place=_numbers(bad))
    return _told(look, finding), history


def _clocks(look: GpuReadings, history: History, limits: Limits) -> tuple[list[Signal], History]:
    """As a share of the looks: a short slowdown is what the protection is there for."""
    clocks = value(look.clocks)
    if clocks is None:
        return [], history
    kept = [(at, held) for at, held in history.clock_looks if 0 <= look.at - at < limits.clocks]
    looks = (*kept, (look.at, bool(clocks.held_back)))
    history = replace(history, clock_looks=looks)
    if len(looks) < MIN_LOOKS or look.at - looks[0][0] < limits.clocks / 2:
        return [], history
    share = sum(held for _, held in looks) / len(looks)
    finding = found(
        "clock-slowdown",
        Need.WATCH,
        f"the hardware held the clocks back in {share:.0%} of the last"
        f" {limits.clocks / 60:.0f} minutes: {', '.join(clocks.held_back) or 'not right now'}",
        when=share >= HELD_BACK_SHARE,
    )
    return _told(look, finding), history


def _fabric(look: GpuReadings, history: History, limits: Limits) -> tuple[list[Signal], History]:
    """Joining takes its time after a boot; later it is software that is missing, not the GPU."""
    fabric = value(look.fabric)
    if fabric is None:
        return [], history
    if fabric.ready:
        return _told(look, Finding(name=JOINING)), replace(history, fabric_since=None)
    since = look.at if history.fabric_since is None else history.fabric_since
    history = replace(history, fabric_since=since)
    if look.at - since < limits.fabric:
        return [], history
    text = (
        f"the GPU has not joined its NVLink fabric for {look.at - since:.0f} s; look at the fabric"
        " manager"
    )
    waiting = CannotTell(
        source=Source.POLL, scope=Scope(gpu=look.gpu), name=JOINING, at=look.at, detail=text
    )
    return [waiting], history


def _memory(look: GpuReadings, history: History, limits: Limits) -> tuple[list[Signal], History]:
    """Memory that nobody can be seen to use: a tenant that was lost. Only where no claim has the
    GPU, as NVML hides processes of other containers from us.
    """
    memory = value(look.memory)
    if look.memory is None or look.held:
        return [], replace(history, leak_since=None)
    if memory is None:
        return [], history
    if memory.processes or memory.used <= limits.memory:
        return _told(look, Finding(name="memory-leftover")), replace(history, leak_since=None)
    since = look.at if history.leak_since is None else history.leak_since
    history = replace(history, leak_since=since)
    if look.at - since < limits.leak:
        return [], history
    text = (
        f"{memory.used // MEBIBYTE} MiB are in use for {look.at - since:.0f} s, but no claim and no"
        " process that can be seen has the GPU"
    )
    return _told(look, Finding(name="memory-leftover", need=Need.WATCH, detail=text)), history


def _numbers(numbers: Iterable[int]) -> str:
    return ",".join(str(each) for each in numbers)
