"""What the end of an active probe says about a device.

Why it exists: only a program that ran on the device proves that it works, but much that ends such
a program is not the device's fault: somebody else has it, the memory is full, the library does not
fit. Those are "cannot tell", and only what a healthy device never does is a fault.

Must not know how a probe is run. Codes and names are those of the CUDA driver API.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from driver.core.health.signals import (
    NODE,
    CannotTell,
    Fault,
    Need,
    ProbePassed,
    Scope,
    Signal,
    Source,
    Well,
)

WRONG_RESULT: Final = "probe-wrong-result"
ERROR: Final = "probe-error"
UNRESPONSIVE: Final = "probe-unresponsive"
BUSY: Final = "probe-busy"
HANGS: Final = "probe-hangs"
NO_DEVICE: Final = "probe-no-device"
CRASHED: Final = "probe-crashed"
NO_CUDA: Final = "probe-no-cuda"
# Of the node, not of one device:
FABRIC: Final = "fabric-not-ready"
MISMATCH: Final = "driver-mismatch"
LIBRARY: Final = "cuda-library"

UNRESPONSIVE_AFTER: Final = 2
"""Probes in a row without an answer. One may have met a busy host; two have not."""

_BUSY_CODES: Final = frozenset({2, 46, 800})
"""Out of memory; device unavailable and not permitted, as in exclusive compute mode."""
_NO_DEVICE_CODES: Final = frozenset({100, 101})
"""CUDA shows no such device: unloaded driver, missing node, instance just destroyed. A GPU that is
really lost is known from NVML and the kernel log."""
_START_CODES: Final = frozenset({3, 304, 999})
"""Of cuInit: not initialised, an error of the operating system, unknown. It opens what the driver
has on the node before it comes to the GPU, so a missing part answers the same on every GPU."""
_NODE_CODES: Final = {802: FABRIC, 803: MISMATCH, 804: MISMATCH}
_PROGRAM_CODES: Final = frozenset({34, 209, 218, 221, 222, 223, 302, 303})
"""A stub library, or no compiler that takes our program: of the installation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTarget:
    """What to probe. `uuid`: of the GPU (`GPU-...`) or the compute instance (`MIG-...`)."""

    scope: Scope
    uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongResult:
    """No call failed, and what came out is wrong: silent corruption."""

    seconds: float
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFailed:
    """`call` of the CUDA driver answered `code`, which it calls `name`."""

    call: str
    code: int
    name: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryUnusable:
    """libcuda is not there, or cannot be loaded, or lacks a function."""

    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashed:
    """The probe ended without an answer: a signal, an exit code, or nonsense on its output."""

    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unresponsive:
    """No answer in `seconds`. `ended`: it could at least be killed."""

    seconds: float
    ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Saturated:
    """Not started: too many earlier probes hang and cannot be killed."""

    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    """Ended by us, because the device or the process was wanted for something else."""


Outcome = (
    Passed
    | WrongResult
    | CallFailed
    | LibraryUnusable
    | Crashed
    | Unresponsive
    | Saturated
    | Interrupted
)


def silent_runs(before: int, outcome: Outcome) -> int:
    """How many probes in a row gave no answer, after this one. What never ran counts as nothing."""
    match outcome:
        case Unresponsive():
            return before + 1
        case Saturated() | Interrupted():
            return before
        case _:
            return 0


def signals(
    target: ProbeTarget, outcome: Outcome, *, started: float, at: float, silent: int = 0
) -> tuple[Signal, ...]:
    """The outcome as evidence. `at`: when it ended; `silent`: `silent_runs`, this one included.

    A pass proves the moment when it `started`: what happened meanwhile is newer than the proof.
    """
    match outcome:
        case Passed():
            return _passed(target, started)
        case Interrupted():
            return ()
        case WrongResult(detail=detail):
            signal: Signal = _fault(target, WRONG_RESULT, at, detail)
        case CallFailed():
            signal = _failed(target, outcome, at)
        case Unresponsive():
            signal = _silent(target, outcome, at, silent)
        case LibraryUnusable(detail=detail):
            signal = _cannot_tell(NODE, LIBRARY, at, detail)
        case Crashed(detail=detail):
            signal = _cannot_tell(target.scope, CRASHED, at, detail)
        case Saturated(detail=detail):
            signal = _cannot_tell(target.scope, HANGS, at, detail)
    return (signal,)


def _passed(target: ProbeTarget, at: float) -> tuple[Signal, ...]:
    """Also proves what all devices share; the fabric only from a whole GPU, which waits for it."""
    shared = [LIBRARY, MISMATCH]
    if target.scope.gi is None:
        shared.append(FABRIC)
    return (
        ProbePassed(scope=target.scope, at=at),
        *(Well(source=Source.PROBE, scope=NODE, name=name, at=at) for name in shared),
    )


def _failed(target: ProbeTarget, outcome: CallFailed, at: float) -> Signal:
    detail = f"{outcome.call} answered {outcome.name} ({outcome.code})"
    code = outcome.code
    if code in _BUSY_CODES:
        return _cannot_tell(target.scope, BUSY, at, detail)
    if code in _NO_DEVICE_CODES:
        return _cannot_tell(target.scope, NO_DEVICE, at, detail)
    if code in _NODE_CODES:
        return _cannot_tell(NODE, _NODE_CODES[code], at, detail)
    if code in _PROGRAM_CODES:
        return _cannot_tell(NODE, LIBRARY, at, detail)
    if outcome.call == "cuInit" and code in _START_CODES:
        next_step = "is nvidia-uvm loaded, and /dev/nvidia-uvm there? See dmesg"
        return _cannot_tell(target.scope, NO_CUDA, at, f"{detail}; {next_step}")
    return _fault(target, ERROR, at, detail)


def _silent(target: ProbeTarget, outcome: Unresponsive, at: float, silent: int) -> Signal:
    end = "was killed" if outcome.ended else "cannot be killed"
    detail = f"no answer in {outcome.seconds:g} s, {silent} in a row; the probe {end}"
    if silent >= UNRESPONSIVE_AFTER:
        return _fault(target, UNRESPONSIVE, at, detail)
    return _cannot_tell(target.scope, UNRESPONSIVE, at, detail)


def _fault(target: ProbeTarget, name: str, at: float, detail: str) -> Fault:
    return Fault(
        source=Source.PROBE,
        scope=target.scope,
        name=name,
        need=Need.RESET,
        at=at,
        detail=detail,
    )


def _cannot_tell(scope: Scope, name: str, at: float, detail: str) -> CannotTell:
    return CannotTell(source=Source.PROBE, scope=scope, name=name, at=at, detail=detail)
