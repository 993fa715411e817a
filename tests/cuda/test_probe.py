"""The real child on simulated GPUs: every way in which a probe can end."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pynvml as n
import pytest

from driver.core.health.probe import (
    CallFailed,
    Crashed,
    LibraryUnusable,
    Passed,
    ProbeTarget,
    Unresponsive,
    WrongResult,
)
from driver.core.health.signals import Scope
from driver.core.ids import GpuUuid
from driver.cuda.locate import find_library
from driver.cuda.prober import Prober
from driver.cuda.process import ChildProcess
from driver.rooted import NotInDriverRoot
from hack.simcuda.build import library_path
from hack.simcuda.testing import FOR_EVER_MS, RULE_CORRUPT
from hack.simnvml import driverroot
from hack.simnvml.library import RULE_CRASH
from hack.simnvml.testing import preload, shut_down
from tests.cuda.conftest import open_files, target, zombies
from tests.simnvml.helpers import partition, start

CALLS = [
    "cuInit",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRetain",
    "cuCtxSetCurrent",
    "cuModuleLoadData",
    "cuModuleGetFunction",
    "cuMemAlloc_v2",
    "cuMemcpyHtoD_v2",
    "cuLaunchKernel",
    "cuCtxSynchronize",
    "cuMemcpyDtoH_v2",
    "cuMemFree_v2",
    "cuModuleUnload",
    "cuDevicePrimaryCtxRelease_v2",
]


def test_a_healthy_gpu_passes_and_no_other_is_touched(node) -> None:
    outcome = node.probe(1)
    assert isinstance(outcome, Passed)
    calls = node.machine.last_calls()
    assert [call.symbol for call in calls] == CALLS
    assert {call.gpu for call in calls} <= {1, None}
    assert {call.ret for call in calls} == {0}


@pytest.mark.parametrize("symbol", CALLS)
def test_a_call_that_fails_is_named_with_its_code(node, symbol) -> None:
    gpu = None if symbol == "cuCtxSetCurrent" else 0
    with node.machine.rule(symbol, ret=999, gpu=gpu):
        outcome = node.probe()
    assert isinstance(outcome, CallFailed)
    assert (outcome.call, outcome.code, outcome.name) == (symbol, 999, "CUDA_ERROR_UNKNOWN")
    assert isinstance(node.probe(1), Passed)


def test_a_code_that_this_libcuda_does_not_know_is_still_told(node) -> None:
    with node.machine.rule("cuInit", ret=4711):
        outcome = node.probe()
    assert isinstance(outcome, CallFailed)
    assert outcome.name == "CUDA error 4711"


@pytest.mark.parametrize("symbol", ["cuMemcpyHtoD_v2", "cuLaunchKernel", "cuMemcpyDtoH_v2"])
def test_one_wrong_bit_is_seen_although_no_call_failed(node, symbol) -> None:
    for seed in (1, 2):
        with node.machine.rule(symbol, ret=RULE_CORRUPT, gpu=0, seed=seed):
            outcome = node.probe()
        assert isinstance(outcome, WrongResult)
        assert outcome.detail.startswith("1 of 262144 words are wrong, the first at ")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda m: m.gpu(0).lose(), 100),
        (lambda m: m.gpu(0).unplug(), 100),
        (lambda m: m.driver_loaded(False), 100),
        (lambda m: m.gpu(0).set(compute_mode=2), 46),
        (lambda m: m.gpu(0).set(mem_used=m.gpu(0).get("mem_total")), 2),
        (lambda m: m.gpu(0).set(fabric_state=2), 802),
        (lambda m: m.set(version_mismatch=1), 803),
        (lambda m: m.gpu(0).set(reset_required=1), 999),
    ],
)
def test_the_state_of_the_machine_decides(node, change, code) -> None:
    change(node.machine)
    outcome = node.probe()
    assert isinstance(outcome, CallFailed)
    assert outcome.code == code


def test_a_partition_is_probed_by_its_mig_uuid_alone(node) -> None:
    preload()
    try:
        gpu = start(0, mig=True)
        _, _, first = partition(gpu)
        gi, _, second = partition(gpu, "3g.40gb")
        scope = Scope(gpu=GpuUuid(node.machine.gpu(0).uuid), gi=n.nvmlGpuInstanceGetInfo(gi).id)
    finally:
        shut_down()
    prober = node.make()
    for uuid in (first, second):
        assert isinstance(prober.probe(ProbeTarget(scope=scope, uuid=uuid)), Passed)
    gone = prober.probe(ProbeTarget(scope=scope, uuid="MIG-00000000-0000-0000-0000-000000000000"))
    assert isinstance(gone, CallFailed)
    assert gone.code == 100


@pytest.mark.parametrize("symbol", ["cuInit", "cuCtxSynchronize"])
def test_a_hang_ends_at_the_deadline_and_leaves_nothing(node, symbol) -> None:
    files = open_files()
    with node.machine.rule(symbol, delay_ms=FOR_EVER_MS, gpu=0):
        began = time.monotonic()
        outcome = node.probe(deadline=0.5)
        took = time.monotonic() - began
    assert outcome == Unresponsive(seconds=0.5, ended=True)
    assert took < 1.5
    assert (open_files(), zombies()) == (files, [])
    assert isinstance(node.probe(), Passed)


def test_a_crash_inside_the_library_is_no_answer(node) -> None:
    with node.machine.rule("cuModuleLoadData", ret=RULE_CRASH):
        outcome = node.probe()
    assert outcome == Crashed(detail="the probe was ended by signal SIGABRT")


def test_a_library_that_cannot_be_used_is_named(node, tmp_path) -> None:
    broken = tmp_path / "libcuda.so.1"
    broken.write_text("no library")
    outcome = Prober(library=lambda: broken).probe(target(node.machine))
    assert isinstance(outcome, LibraryUnusable)
    assert str(broken) in outcome.detail
    nvml_only = Prober(library=preload).probe(target(node.machine))
    assert isinstance(nvml_only, LibraryUnusable)
    assert "cuInit" in nvml_only.detail
    missing = Prober(library=lambda: find_library(tmp_path)).probe(target(node.machine))
    assert isinstance(missing, LibraryUnusable)
    assert f"below {tmp_path}; install the NVIDIA driver" in missing.detail


def test_the_library_of_a_driver_root_is_found_and_follows_the_driver(node, tmp_path) -> None:
    with pytest.raises(NotInDriverRoot):
        find_library(tmp_path)
    driverroot.render(node.machine, tmp_path, nodes=False, ahead=False)
    prober = Prober(library=lambda: find_library(tmp_path))
    assert isinstance(prober.probe(target(node.machine)), Passed)


def test_the_environment_steers_nothing_but_what_the_probe_sets(node, monkeypatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "LD_PRELOAD", "PYTHONHOME"):
        monkeypatch.setenv(name, "/nonsense")
    given: dict[str, str] = {}

    def starter(command, environment):
        given.update(environment)
        raise OSError(2, "No such file")

    assert isinstance(node.make(start=starter).probe(target(node.machine)), Crashed)
    assert {
        name: value for name, value in given.items() if name.startswith(("CUDA", "LD_", "PYTHON"))
    } == {
        "CUDA_VISIBLE_DEVICES": node.machine.gpu(0).uuid,
        "CUDA_CACHE_DISABLE": "1",
        "LD_LIBRARY_PATH": str(library_path().parent),
    }
    assert given["SIMNVML_STATE"] == os.environ["SIMNVML_STATE"]


def test_the_child_can_be_run_by_hand(node) -> None:
    request = json.dumps({"library": str(library_path()), "seed": 1, "blocks": 2})
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": node.machine.gpu(0).uuid}
    ran = subprocess.run(
        [sys.executable, "-m", "driver.cuda.child", request],
        cwd=Path(__file__).resolve().parents[2],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    answer = json.loads(ran.stdout)
    assert (answer["result"], answer["device"]) == ("passed", "NVIDIA H100 80GB HBM3")


def test_a_child_that_nobody_waits_for_ends_itself(node) -> None:
    request = json.dumps({"library": str(library_path()), "seed": 1, "limit": 1})
    with node.machine.rule("cuInit", delay_ms=FOR_EVER_MS):
        ran = subprocess.run(
            [sys.executable, "-m", "driver.cuda.child", request],
            cwd=Path(__file__).resolve().parents[2],
            capture_output=True,
            check=False,
        )
    assert ran.returncode == -14


def test_the_child_imports_little(node) -> None:
    code = "import sys, driver.cuda.child; print(*sys.modules)"
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, '.'); {code}"]
    root = Path(__file__).resolve().parents[2]
    ran = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    modules = set(ran.stdout.split())
    assert {name for name in modules if name.startswith(("driver", "api"))} == {
        "driver",
        "driver.cuda",
        "driver.cuda.api",
        "driver.cuda.child",
        "driver.cuda.kernel",
    }
    slow = {"dataclasses", "typing", "inspect", "asyncio", "subprocess", "logging", "threading"}
    assert not modules & slow


def test_two_hundred_probes_leave_memory_and_files_as_they_were(node) -> None:
    def small(command, environment):
        request = json.loads(command[-1]) | {"blocks": 2, "rounds": 1}
        return ChildProcess([*command[:-1], json.dumps(request)], environment)

    prober = node.make(start=small)
    both = [target(node.machine, slot) for slot in (0, 1)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(prober.probe, both * 10))
        files, before = open_files(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        outcomes = {type(outcome) for outcome in pool.map(prober.probe, both * 100)}
    assert outcomes == {Passed}
    assert (open_files(), zombies()) == (files, [])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2048  # KiB
