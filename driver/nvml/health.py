"""Looks at every GPU through NVML, time after time, and says what it sees.

Why it exists: states that no event tells (remapped rows, links, a GPU that is not counted any more,
an advice that was there before we started) are only found by looking. A look may hang: it is made
where it can be given up, and the next one leaves out the GPU on which it hangs.

Must not know what a reading means; `driver.core.health.readings.node` does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from driver.core.errors import CallHangs, DriverNotLoaded, NvmlError, Released
from driver.core.health.items import RELEASED
from driver.core.health.readings.node import Memories, weigh_failure, weigh_node
from driver.core.health.readings.over_time import Limits
from driver.core.health.readings.values import Failed, GpuReadings, NodeReadings
from driver.core.health.signals import NODE, CannotTell, Scope, Signal, Source, Well
from driver.core.ids import GpuUuid
from driver.core.snapshot import PciAddress
from driver.nvml.calls import call
from driver.nvml.health_readings import failed, read_gpu
from driver.nvml.library import NvmlLibrary
from driver.nvml.watchdog import Watchdog
from driver.ports.health import Alarm, Sink

HANGS: Final = "nvml-hangs"

_SLOW: Final = 6
"""Of so many looks, one reads everything."""
_GAP: Final = 0.25
"""Seconds between two looks, whoever asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What the poll must know of the node, asked at each look. `known`: the GPUs that the node has,
    by all that was ever read, and where they are; `bus`: GPUs on the PCI bus; `held`: whether a
    claim has the GPU.
    """

    known: Callable[[], Mapping[GpuUuid, PciAddress]]
    bus: Callable[[], tuple[PciAddress, ...]]
    held: Callable[[GpuUuid], bool]


@dataclass(slots=True)
class _Progress:
    """Where a look is, so that it can be said where it hangs."""

    gpu: str = "all GPUs"
    found: dict[GpuUuid, PciAddress] = field(default_factory=dict)


class NvmlPoll:
    """Implements `driver.ports.health.HealthSource`."""

    name = "nvml-poll"

    def __init__(
        self,
        library: NvmlLibrary,
        *,
        around: Around,
        sink: Sink,
        alarm: Alarm,
        period: float = 5.0,
        hang_after: float = 10.0,
        limits: Limits | None = None,
        on_gpus: Callable[[], None] = lambda: None,
        on_look: Callable[[NodeReadings], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`alarm` ends a wait; `period`, `hang_after`: seconds; `on_gpus` is called when other GPUs
        answer than before; `on_look` after each look, with what was read.
        """
        self._session = library.session
        self._around = around
        self._sink = sink
        self._alarm = alarm
        self._period = period
        self._limits = limits or Limits()
        self._on_gpus = on_gpus
        self._on_look = on_look
        self._clock = clock
        self._watchdog = Watchdog(limit=hang_after)
        self._memories: Memories = {}
        self._places: dict[GpuUuid, PciAddress] = {}
        self._answering: frozenset[GpuUuid] = frozenset()

    def look_soon(self) -> None:
        """Something has changed; for any thread."""
        self._alarm.wake()

    def run(self, stop: threading.Event) -> None:
        """What changes slowly is read less often, but soon when something has changed. A flood of
        changes asks for no more than a few looks a second.
        """
        whole_at, pause = float("-inf"), 0.0
        while not stop.is_set():
            whole = time.monotonic() - whole_at >= pause
            if whole:
                whole_at = time.monotonic()
            self._sink(*self.look(whole=whole))
            stop.wait(_GAP)
            woken = self._alarm.wait(self._period)
            pause = self._period if woken else _SLOW * self._period

    def look(self, *, whole: bool = True) -> list[Signal]:
        """One look at all GPUs. For one thread."""
        progress = _Progress()
        skip = frozenset(self._watchdog.hanging)
        known = dict(self._around.known())
        try:
            got = self._watchdog.call(
                lambda: self._read(progress, known, skip, whole=whole), name=lambda: progress.gpu
            )
        except NvmlError as error:
            self._answering = frozenset()
            return self._failure(error)
        signals, self._memories = weigh_node(got, self._memories, self._limits)
        self._places.update(progress.found)
        self._tell_others(got)
        self._on_look(got)
        return [*self._nvml_returned(skip), *signals]

    def _failure(self, error: NvmlError) -> list[Signal]:
        if isinstance(error, Released):
            return [self._cannot_tell(NODE, RELEASED, error)]
        if isinstance(error, CallHangs):
            return [self._cannot_tell(NODE, HANGS, error)]
        whole = weigh_failure(failed(error), self._clock())
        return [*self._nvml_returned(frozenset(self._watchdog.hanging)), *whole]

    def _tell_others(self, got: NodeReadings) -> None:
        answering = frozenset(g for g, r in got.gpus.items() if isinstance(r, GpuReadings))
        if answering != self._answering:
            self._answering = answering
            self._on_gpus()

    def _nvml_returned(self, hanging: frozenset[str]) -> list[Signal]:
        """The library as a whole goes on, whatever one GPU does."""
        at = self._clock()
        signals: list[Signal] = [
            Well(source=Source.POLL, scope=NODE, name=name, at=at) for name in (HANGS, RELEASED)
        ]
        for gpu in {**self._places, **self._around.known()}:
            scope = Scope(gpu=gpu)
            signals.append(
                CannotTell(
                    source=Source.POLL,
                    scope=scope,
                    name=HANGS,
                    at=at,
                    detail="a call for this GPU has not returned; see dmesg",
                )
                if gpu in hanging
                else Well(source=Source.POLL, scope=scope, name=HANGS, at=at)
            )
        return signals

    def _cannot_tell(self, scope: Scope, name: str, error: NvmlError) -> CannotTell:
        return CannotTell(
            source=Source.POLL, scope=scope, name=name, at=self._clock(), detail=str(error)
        )

    # -- in a thread that may be given up: reads, and changes nothing but its own progress

    def _read(
        self,
        progress: _Progress,
        known: Mapping[GpuUuid, PciAddress],
        skip: frozenset[str],
        *,
        whole: bool,
    ) -> NodeReadings:
        with self._session.inside():
            branch = int(str(call("nvmlSystemGetDriverVersion")).split(".")[0])
            handles = _by_index(progress)
        found = progress.found
        # Where another one sits now, a GPU was replaced, and is not missed.
        taken = {where: gpu for gpu, where in found.items()}
        places = {
            gpu: where
            for gpu, where in {**known, **self._places, **found}.items()
            if taken.get(where, gpu) == gpu
        }
        gpus: dict[GpuUuid, GpuReadings | Failed] = {}
        for gpu in sorted(places):
            if gpu not in skip:
                progress.gpu = gpu
                gpus[gpu] = self._read_one(gpu, handles, whole=whole)
        uncounted = [each for each in self._around.bus() if each not in places.values()]
        return NodeReadings(
            at=self._clock(),
            branch=branch,
            gpus=gpus,
            places=places,
            uncounted=tuple(uncounted),
        )

    def _read_one(
        self, gpu: GpuUuid, handles: Mapping[GpuUuid, Any], *, whole: bool
    ) -> GpuReadings | Failed:
        try:
            with self._session.inside():
                handle = handles.get(gpu)
                if handle is None:
                    handle = call("nvmlDeviceGetHandleByUUID", gpu, gpu=gpu)
                held = self._around.held(gpu)
                return read_gpu(handle, gpu, at=self._clock(), held=held, whole=whole)
        except (DriverNotLoaded, Released):
            raise
        except NvmlError as error:
            return failed(error)


def _by_index(progress: _Progress) -> dict[GpuUuid, Any]:
    """The GPUs that NVML counts and that answer."""
    handles: dict[GpuUuid, Any] = {}
    for index in range(int(call("nvmlDeviceGetCount"))):
        try:
            handle = call("nvmlDeviceGetHandleByIndex", index)
            gpu = GpuUuid(call("nvmlDeviceGetUUID", handle))
            info = call("nvmlDeviceGetPciInfo", handle)
        except DriverNotLoaded:
            raise
        except NvmlError:
            continue  # it is asked for by its UUID next, and says there what it has
        handles[gpu] = handle
        progress.found[gpu] = PciAddress(domain=info.domain, bus=info.bus, device=info.device)
    return handles
