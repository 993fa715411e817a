"""NVML's events: what the driver tells by itself, milliseconds after it happened.

Why it exists: an Xid with its GPU and compute instance, and a change of the recovery action, arrive
here at once; the poll would find them seconds later. Events are an addition: nothing of before is
told, and a GPU that is lost tells nothing more, so every error makes the poll look.

The set is made anew when other GPUs answer, when the library was closed meanwhile, and after an
error, with a growing pause.

Must not know what an Xid means.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pynvml

from driver.core.errors import DriverNotLoaded, NvmlError, Released
from driver.core.health.items import RELEASED
from driver.core.health.kernel.verdict_recovery import recovery_faults
from driver.core.health.signals import (
    NODE,
    CannotTell,
    Fault,
    Need,
    Scope,
    Signal,
    Source,
    Well,
)
from driver.core.ids import GpuUuid
from driver.nvml.calls import call, optional
from driver.nvml.library import NvmlLibrary
from driver.nvml.watchdog import Watchdog
from driver.ports.health import Alarm, Sink, XidSeen, XidSink

EVENTS: Final = "nvml-events"

_XID: Final = 0x8
_MIG_CHANGED: Final = 0x100
_RECOVERY: Final = 0x8000
_FAULTS: Final = {
    0x2: ("ecc-event", Need.PROBE, "an uncorrectable memory error"),
    0x800: ("row-remap-event", Need.OPERATOR, "a memory row could not be replaced"),
    0x2000: ("fatal-poison", Need.RESET, "poisoned data was used, and not contained"),
    0x4000: ("gpu-unavailable", Need.PROBE, "the GPU has become unavailable"),
}
_LOOKS: Final = 0x400
"""A memory row is to be replaced: the poll says more."""
_WANTED: Final = _XID | _MIG_CHANGED | _RECOVERY | _LOOKS | sum(_FAULTS)
_NOBODY: Final = 0xFFFFFFFF
_SLICE_MS: Final = 500
"""How long one wait is inside the library: closing waits for it."""
_AT_ONCE: Final = 256
_PAUSES: Final = (0.5, 30.0)
_NOTHING_TO_HEAR: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listening:
    """`gpus`: by address of the handle, as a lost GPU does not tell its name any more."""

    events: Any
    opening: int
    gpus: Mapping[int, GpuUuid]
    branch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    gpu: GpuUuid
    kind: int
    data: int
    gi: int | None
    ci: int | None


class NvmlEvents:
    """Implements `driver.ports.health.HealthSource`."""

    name = "nvml-events"

    def __init__(
        self,
        library: NvmlLibrary,
        *,
        sink: Sink,
        on_xid: XidSink,
        alarm: Alarm,
        look_soon: Callable[[], None],
        on_mig_change: Callable[[], None] = lambda: None,
        hang_after: float = 10.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`alarm` ends a pause; `look_soon`: the poll's; `hang_after`: seconds over a wait's."""
        self._session = library.session
        self._sink = sink
        self._on_xid = on_xid
        self._alarm = alarm
        self._look_soon = look_soon
        self._on_mig_change = on_mig_change
        self._clock = clock
        self._watchdog = Watchdog(limit=hang_after + _SLICE_MS / 1000, most=1)
        self._listening: _Listening | None = None
        self._stale = threading.Event()
        self._told_well = False

    def remake(self) -> None:
        """Other GPUs answer now; for any thread."""
        self._stale.set()
        self._alarm.wake()

    def run(self, stop: threading.Event) -> None:
        pause, longest = _PAUSES
        while not stop.is_set():
            try:
                heard = self._step()
            except NvmlError as error:
                self._trouble(error)
                self._alarm.wait(pause)
                pause = min(2 * pause, longest)
                continue
            if heard is None:
                self._alarm.wait(_NOTHING_TO_HEAR)
                continue
            pause = _PAUSES[0]
            for event in heard:
                self._tell(event)
        self._listening = None

    def _trouble(self, error: NvmlError) -> None:
        """The poll finds out what it is, and of which GPU."""
        self._listening = None
        self._told_well = False
        name = RELEASED if isinstance(error, Released) else EVENTS
        self._sink(
            CannotTell(
                source=Source.EVENTS, scope=NODE, name=name, at=self._clock(), detail=str(error)
            )
        )
        self._look_soon()

    def _step(self) -> list[_Event] | None:
        """Events of one wait; None where no GPU has any to tell."""
        old, stale = self._listening, self._stale.is_set()
        self._stale.clear()
        listening, heard = self._watchdog.call(
            lambda: self._listen(old, stale=stale), name=lambda: "events of all GPUs"
        )
        self._listening = listening
        if not self._told_well:
            self._told_well = True
            at = self._clock()
            names = (EVENTS, RELEASED)
            self._sink(*(Well(source=Source.EVENTS, scope=NODE, name=n, at=at) for n in names))
        return heard if listening.gpus else None

    def _tell(self, event: _Event) -> None:
        at = self._clock()
        scope = Scope(gpu=event.gpu, gi=event.gi, ci=event.ci)
        if event.kind == _XID:
            self._on_xid(XidSeen(gpu=event.gpu, code=event.data, at=at, gi=event.gi, ci=event.ci))
        elif event.kind == _RECOVERY and self._listening is not None:
            branch = self._listening.branch
            self._sink(recovery_faults(event.data, branch, gpu=event.gpu, at=at))
        elif event.kind == _MIG_CHANGED:
            self._on_mig_change()
            return  # it says nothing of health
        elif event.kind in _FAULTS:
            self._sink(_fault(event, scope, at))
        self._look_soon()

    # -- in a thread that may be given up

    def _listen(self, old: _Listening | None, *, stale: bool) -> tuple[_Listening, list[_Event]]:
        with self._session.inside():
            opening = self._session.openings
            if old is not None and old.opening != opening:
                old = None  # it went with the library
            elif old is not None and stale:
                call("nvmlEventSetFree", old.events)
                old = None
            listening = old or _make(opening)
            try:
                return listening, _wait(listening) if listening.gpus else []
            except NvmlError:
                _free(listening)
                raise


def _free(listening: _Listening) -> None:
    """After an error: the one that is told is the first."""
    with suppress(NvmlError):
        call("nvmlEventSetFree", listening.events)


def _make(opening: int) -> _Listening:
    """On the GPUs themselves: a MIG device has no events of its own."""
    events = call("nvmlEventSetCreate")
    gpus: dict[int, GpuUuid] = {}
    for index in range(int(call("nvmlDeviceGetCount"))):
        try:
            handle = call("nvmlDeviceGetHandleByIndex", index)
            gpu = GpuUuid(call("nvmlDeviceGetUUID", handle))
            types = _WANTED & int(
                optional("nvmlDeviceGetSupportedEventTypes", handle, gpu=gpu) or 0
            )
            if types:
                call("nvmlDeviceRegisterEvents", handle, types, events, gpu=gpu)
                gpus[_address(handle)] = gpu
        except DriverNotLoaded:
            raise
        except NvmlError:
            continue  # the poll says what is wrong with this GPU
    branch = int(str(call("nvmlSystemGetDriverVersion")).split(".")[0])
    return _Listening(events=events, opening=opening, gpus=gpus, branch=branch)


def _wait(listening: _Listening) -> list[_Event]:
    heard: list[_Event] = []
    wait_ms = _SLICE_MS
    while len(heard) < _AT_ONCE:
        try:
            data = call("nvmlEventSetWait_v2", listening.events, wait_ms)
        except NvmlError as error:
            if error.code == pynvml.NVML_ERROR_TIMEOUT or heard:
                break  # an error comes again at the next wait; what was heard is told first
            raise
        wait_ms = 0
        gpu = listening.gpus.get(_address(data.device))
        if gpu is not None:
            heard.append(
                _Event(
                    gpu=gpu,
                    kind=int(data.eventType),
                    data=int(data.eventData),
                    gi=_instance(data.gpuInstanceId),
                    ci=_instance(data.computeInstanceId),
                )
            )
    return heard


def _fault(event: _Event, scope: Scope, at: float) -> Signal:
    name, need, text = _FAULTS[event.kind]
    return Fault(source=Source.EVENTS, scope=scope, name=name, need=need, at=at, detail=text)


def _instance(identifier: int) -> int | None:
    return None if identifier == _NOBODY else int(identifier)


def _address(handle: Any) -> int:
    return int(ctypes.cast(handle, ctypes.c_void_p).value or 0)
