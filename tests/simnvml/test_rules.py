"""Fault rules on calls, and the record of calls."""

from __future__ import annotations

import time

import pynvml as n
import pytest

from tests.simnvml.helpers import code_of, partition, start


def temperature(gpu) -> int:
    return code_of(n.nvmlDeviceGetTemperature, gpu, 0)


def test_a_rule_hits_as_often_as_it_says_and_then_is_gone(nvml, make_machine) -> None:
    machine = make_machine()
    gpu = start()
    machine.rule("nvmlDeviceGetTemp*", ret=999, times=2)
    assert [temperature(gpu) for _ in range(4)] == [999, 999, 0, 0]
    assert machine.rules() == []


def test_a_rule_ends_with_its_block(nvml, make_machine) -> None:
    machine = make_machine()
    gpu = start()
    with machine.rule("nvmlDeviceGetTemperature", ret=n.NVML_ERROR_TIMEOUT):
        assert temperature(gpu) == n.NVML_ERROR_TIMEOUT
    assert temperature(gpu) == 0


def test_a_rule_lets_some_calls_pass_first(nvml, make_machine) -> None:
    machine = make_machine()
    gpu = start()
    machine.rule("nvmlDeviceGetTemperature", ret=999, after=2, times=1)
    assert [temperature(gpu) for _ in range(4)] == [0, 0, 999, 0]


def test_the_first_rule_wins(nvml, make_machine) -> None:
    machine = make_machine()
    gpu = start()
    machine.rule("nvmlDeviceGetTemperature", ret=3)
    machine.rule("*", ret=999)
    assert temperature(gpu) == 3
    assert code_of(n.nvmlDeviceGetPowerUsage, gpu) == 999


def test_a_rule_for_one_gpu_spares_the_others_and_hits_look_ups_too(nvml, make_machine) -> None:
    machine = make_machine("h100x2")
    n.nvmlInit()
    well, sick = (n.nvmlDeviceGetHandleByIndex(i) for i in range(2))
    uuid = n.nvmlDeviceGetUUID(sick)
    with machine.rule("*", ret=999, gpu=1):
        assert (temperature(well), temperature(sick)) == (0, 999)
        assert code_of(n.nvmlDeviceGetHandleByIndex, 0) == 0
        assert code_of(n.nvmlDeviceGetHandleByIndex, 1) == 999
        assert code_of(n.nvmlDeviceGetHandleByUUID, uuid) == 999


def test_chance_is_repeatable(nvml, make_machine) -> None:
    machine = make_machine()
    gpu = start()

    def run(seed: int) -> list[int]:
        with machine.rule("nvmlDeviceGetTemperature", ret=999, probability=0.3, seed=seed):
            return [temperature(gpu) for _ in range(200)]

    assert run(7) == run(7) != run(8)
    assert 30 < run(7).count(999) < 90


def test_a_slow_call_works_and_does_not_hold_up_others(nvml, make_machine) -> None:
    machine = make_machine("h100x2")
    gpu = start(mig=True)
    gi, ci, _ = partition(gpu)
    n.nvmlComputeInstanceDestroy(ci)
    machine.rule("nvmlGpuInstanceDestroy", delay_ms=60)
    began = time.monotonic()
    n.nvmlGpuInstanceDestroy(gi)
    assert time.monotonic() - began >= 0.06
    assert machine.snapshot() == {}


def test_too_many_rules_are_refused_with_the_next_step(make_machine) -> None:
    machine = make_machine()
    for _ in range(64):
        machine.rule("x")
    with pytest.raises(RuntimeError, match="clear some"):
        machine.rule("x")
    machine.clear_rules()
    machine.rule("x")


# -- counters


def test_calls_are_counted_and_the_last_are_kept_in_order(nvml, make_machine) -> None:
    machine = make_machine("h100x2")
    gpu = start(1)
    before = machine.calls()
    for _ in range(300):
        n.nvmlDeviceGetTemperature(gpu, 0)
    code_of(n.nvmlDeviceGetMigDeviceHandleByIndex, gpu, 0)
    assert machine.calls() - before == 301
    assert machine.calls("nvmlDeviceGetTemp*") == 300
    log = machine.last_calls()
    assert len(log) == 256
    assert [call.at for call in log] == sorted(call.at for call in log)
    last = log[-1]
    assert (last.symbol, last.gpu) == ("nvmlDeviceGetMigDeviceHandleByIndex", 1)
    assert last.ret == n.NVML_ERROR_NOT_SUPPORTED


def test_a_look_up_counts_once_even_under_a_rule_of_its_gpu(nvml, make_machine) -> None:
    machine = make_machine()
    n.nvmlInit()
    machine.rule("nvmlDeviceGetHandleByIndex*", ret=999, gpu=0, times=2)
    assert code_of(n.nvmlDeviceGetHandleByIndex, 0) == 999
    assert machine.calls("nvmlDeviceGetHandleByIndex*") == 1
    assert machine.rules()[0]["left"] == 1


def test_waiting_for_calls_that_never_come_says_how_many_came(nvml, make_machine) -> None:
    machine = make_machine()
    n.nvmlInit()
    machine.wait_calls("nvmlInit*", 1)
    with pytest.raises(TimeoutError, match="called 1 times"):
        machine.wait_calls("nvmlInit*", 2, timeout=0.05)
