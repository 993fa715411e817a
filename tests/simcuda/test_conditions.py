"""What befalls the machine shows in CUDA as well: one state for both libraries."""

from __future__ import annotations

import ctypes as c
from concurrent.futures import ThreadPoolExecutor

import pytest

from hack.simcuda.testing import init
from tests.simnvml.helpers import partition, start


@pytest.mark.parametrize(
    ("machine_is", "gpu_is", "code"),
    [
        ({}, {}, 0),
        ({"driver_loaded": 0}, {}, 100),
        ({"version_mismatch": 1}, {}, 803),
        ({}, {"lost": 1}, 100),
        ({}, {"present": 0}, 100),
        ({}, {"fabric_state": 2}, 802),
        ({}, {"fabric_state": 3}, 0),
    ],
)
def test_starting(cuda, make_machine, machine_is, gpu_is, code) -> None:
    machine = make_machine()
    machine.set(**machine_is)
    machine.gpu(1).set(**gpu_is)
    assert init(machine.gpu(1).uuid) == code
    assert machine_is or init(machine.gpu(0).uuid) == 0  # the other GPU does not mind


def test_a_partition_does_not_wait_for_the_fabric(cuda, nvml, make_machine) -> None:
    machine = make_machine()
    _, _, uuid = partition(start(0, mig=True))
    machine.gpu(0).set(fabric_state=2)
    assert init(uuid) == 0


@pytest.mark.parametrize(
    ("gpu_is", "process", "code"),
    [
        ({"compute_mode": 2}, False, 46),
        ({"compute_mode": 3}, False, 0),
        ({"compute_mode": 3}, True, 46),
        ({"reset_required": 1}, False, 999),
    ],
)
def test_opening_a_context(cuda, make_machine, gpu_is, process, code) -> None:
    machine = make_machine()
    gpu = machine.gpu(0)
    gpu.set(**gpu_is)
    if process:
        gpu.process(4711, 1 << 20)
    init(gpu.uuid)
    assert cuda.lib.cuDevicePrimaryCtxRetain(c.byref(c.c_void_p()), 0) == code


def test_a_gpu_that_is_lost_under_a_program_fails_it_for_good(cuda, make_machine) -> None:
    machine = make_machine()
    init(machine.gpu(0).uuid)
    cuda.context()
    machine.gpu(0).lose()
    assert cuda.lib.cuCtxSynchronize() == 999
    machine.gpu(0).reset()
    assert cuda.lib.cuCtxSynchronize() == 999


def test_an_instance_that_is_destroyed_under_a_program_fails_it(cuda, nvml, make_machine) -> None:
    make_machine()
    gi, ci, uuid = partition(start(0, mig=True))
    init(uuid)
    cuda.context()
    nvml.nvmlComputeInstanceDestroy(ci)
    nvml.nvmlGpuInstanceDestroy(gi)
    assert cuda.lib.cuCtxSynchronize() == 999


def test_rules_are_for_calls_and_gpus_as_with_nvml(cuda, make_machine) -> None:
    machine = make_machine()
    first, second = (gpu.uuid for gpu in machine.gpus)
    with machine.rule("cuInit", ret=802, gpu=1):
        assert init(first) == 0
        assert init(second) == 802
        assert init() == 802
    with machine.rule("cu*", ret=999, times=1):
        assert init(first) == 999
        assert init(first) == 0
    assert machine.calls("cuInit") == 5
    assert [(call.symbol, call.gpu, call.ret) for call in machine.last_calls()][-2:] == [
        ("cuInit", 0, 999),
        ("cuInit", 0, 0),
    ]


def test_a_slow_call_does_not_hold_up_the_machine(cuda, make_machine) -> None:
    machine = make_machine()
    with ThreadPoolExecutor(1) as pool, machine.rule("cuInit", delay_ms=500):
        slow = pool.submit(init, machine.gpu(0).uuid)
        machine.wait_calls("cuInit", 1)
        machine.gpu(0).set(temp=40)
        assert machine.gpu(0).get("temp") == 40
        assert not slow.done()
        assert slow.result() == 0
