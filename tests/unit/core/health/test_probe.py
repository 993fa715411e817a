"""What each end of a probe means: pass, fault, or cannot tell, and about what."""

from __future__ import annotations

import pytest

from driver.core.health.probe import (
    CallFailed,
    Crashed,
    Interrupted,
    LibraryUnusable,
    Passed,
    ProbeTarget,
    Saturated,
    Unresponsive,
    WrongResult,
    signals,
    silent_runs,
)
from driver.core.health.signals import (
    NODE,
    CannotTell,
    Fault,
    Need,
    ProbePassed,
    Scope,
    Source,
    Well,
)
from driver.core.ids import GpuUuid

GPU = ProbeTarget(scope=Scope(gpu=GpuUuid("GPU-a")), uuid="GPU-a")
PART = ProbeTarget(scope=Scope(gpu=GpuUuid("GPU-a"), gi=1, ci=0), uuid="MIG-b")
STARTED, AT = 100.0, 130.0


def said(target, outcome, silent=0):
    return signals(target, outcome, started=STARTED, at=AT, silent=silent)


def failed(code, call="cuInit"):
    return CallFailed(call=call, code=code, name="CUDA_ERROR_UNKNOWN", seconds=0.1)


@pytest.mark.parametrize("target", [GPU, PART])
def test_a_pass_proves_the_device_as_it_was_when_the_probe_started(target) -> None:
    proof, *shared = said(target, Passed(seconds=30.0))
    assert proof == ProbePassed(scope=target.scope, at=STARTED)
    names = {"cuda-library", "driver-mismatch"} | ({"fabric-not-ready"} if target is GPU else set())
    assert {signal.name for signal in shared if isinstance(signal, Well)} == names
    assert {(signal.scope, signal.at) for signal in shared} == {(NODE, STARTED)}


@pytest.mark.parametrize("target", [GPU, PART])
@pytest.mark.parametrize(
    ("outcome", "name"),
    [
        (WrongResult(seconds=1, detail="1 of 8 words are wrong"), "probe-wrong-result"),
        (failed(999, "cuDevicePrimaryCtxRetain"), "probe-error"),
        (failed(999, "cuCtxSynchronize"), "probe-error"),
        (failed(304, "cuMemAlloc_v2"), "probe-error"),
        (failed(214), "probe-error"),
        (failed(719), "probe-error"),
        (failed(4711), "probe-error"),
    ],
)
def test_what_a_healthy_device_never_does_is_its_fault(target, outcome, name) -> None:
    (fault,) = said(target, outcome)
    assert isinstance(fault, Fault)
    assert (fault.source, fault.scope, fault.name) == (Source.PROBE, target.scope, name)
    assert (fault.need, fault.at, fault.injected) == (Need.RESET, AT, False)
    assert fault.detail


@pytest.mark.parametrize(
    ("outcome", "scope", "name"),
    [
        (failed(2), GPU.scope, "probe-busy"),
        (failed(46), GPU.scope, "probe-busy"),
        (failed(800), GPU.scope, "probe-busy"),
        (failed(100), GPU.scope, "probe-no-device"),
        (failed(101), GPU.scope, "probe-no-device"),
        (failed(3), GPU.scope, "probe-no-cuda"),
        (failed(304), GPU.scope, "probe-no-cuda"),
        (failed(999), GPU.scope, "probe-no-cuda"),
        (failed(802), NODE, "fabric-not-ready"),
        (failed(803), NODE, "driver-mismatch"),
        (failed(804), NODE, "driver-mismatch"),
        (failed(222), NODE, "cuda-library"),
        (LibraryUnusable(detail="no such file"), NODE, "cuda-library"),
        (Crashed(detail="the probe was ended by signal SIGKILL"), GPU.scope, "probe-crashed"),
        (Saturated(detail="4 earlier probes hang"), GPU.scope, "probe-hangs"),
    ],
)
def test_what_may_have_other_causes_is_cannot_tell(outcome, scope, name) -> None:
    (signal,) = said(GPU, outcome)
    assert isinstance(signal, CannotTell)
    assert (signal.source, signal.scope, signal.name, signal.at) == (Source.PROBE, scope, name, AT)
    assert signal.detail


def test_a_cuda_that_does_not_start_names_the_part_of_the_driver_to_look_for() -> None:
    (signal,) = said(GPU, failed(999))
    assert isinstance(signal, CannotTell)
    assert "(999); is nvidia-uvm loaded, and /dev/nvidia-uvm there? See dmesg" in signal.detail


def test_a_probe_that_we_ended_ourselves_says_nothing() -> None:
    assert said(GPU, Interrupted()) == ()


def test_no_answer_is_cannot_tell_once_and_a_fault_the_second_time_in_a_row() -> None:
    hang = Unresponsive(seconds=30, ended=False)
    killed = Unresponsive(seconds=30, ended=True)
    playbook = [
        (hang, 1, "cannot be killed"),
        (Saturated(detail="full"), 1, None),
        (Interrupted(), 1, None),
        (killed, 2, "was killed"),
        (hang, 3, "cannot be killed"),
        (failed(46), 0, None),
        (killed, 1, "was killed"),
        (Passed(seconds=1), 0, None),
    ]
    silent = 0
    for outcome, expected, end in playbook:
        silent = silent_runs(silent, outcome)
        assert silent == expected
        if end:
            (signal,) = said(GPU, outcome, silent)
            assert isinstance(signal, Fault if silent > 1 else CannotTell)
            assert signal.name == "probe-unresponsive"
            assert f"no answer in 30 s, {silent} in a row; the probe {end}" == signal.detail
