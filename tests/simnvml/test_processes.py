"""One machine, many processes: sharing, waking, dying."""

from __future__ import annotations

import os
import signal
import threading
import time

import pynvml as n
import pytest

from tests.simnvml.helpers import child, code_of, partition, start

XID = n.nvmlEventTypeXidCriticalError


def test_two_processes_see_one_machine(nvml, make_machine) -> None:
    machine = make_machine()
    gpu = start(mig=True)
    _, _, uuid = partition(gpu)
    code = """
n.nvmlInit()
h = n.nvmlDeviceGetHandleByUUID(input())
n.nvmlDeviceSetPersistenceMode(n.nvmlDeviceGetHandleByIndex(1), 0)
print(n.nvmlDeviceGetName(h))
"""
    with child(code, machine, stdin=-1) as other:
        out, _ = other.communicate(uuid + "\n", timeout=20)
    assert out == "NVIDIA H100 80GB HBM3 MIG 1g.10gb\n"
    assert n.nvmlDeviceGetPersistenceMode(n.nvmlDeviceGetHandleByIndex(1)) == 0


def test_an_event_from_another_process_wakes_a_wait_that_leaves_the_gil(nvml, make_machine) -> None:
    machine = make_machine()
    gpu = start()
    events = n.nvmlEventSetCreate()
    n.nvmlDeviceRegisterEvents(gpu, XID, events)
    ticks, over = 0, threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not over.wait(0.001):
            ticks += 1

    ticker = threading.Thread(target=tick)
    ticker.start()
    code = "import time\nm.wait_calls('nvmlEventSetWait_v2', 1)\nprint(time.monotonic())\n"
    with child(code + "m.gpu(0).xid(31)", machine) as other:
        event = n.nvmlEventSetWait_v2(events, 20_000)
        woken = time.monotonic()
        out, _ = other.communicate(timeout=20)
    over.set()
    ticker.join()
    assert event.eventData == 31
    assert woken - float(out) < 1.0
    assert ticks > 10


def test_losing_the_gpu_in_another_thread_ends_the_wait(nvml, make_machine) -> None:
    machine = make_machine()
    gpu = start()
    events = n.nvmlEventSetCreate()
    n.nvmlDeviceRegisterEvents(gpu, XID, events)

    def lose() -> None:
        machine.wait_calls("nvmlEventSetWait_v2", 1)
        machine.gpu(0).lose()

    thread = threading.Thread(target=lose)
    thread.start()
    began = time.monotonic()
    assert code_of(n.nvmlEventSetWait_v2, events, 20_000) == n.NVML_ERROR_GPU_IS_LOST
    assert time.monotonic() - began < 10
    thread.join()


def test_processes_killed_inside_calls_leave_a_working_machine(nvml, make_machine) -> None:
    machine = make_machine()
    gpu = start(mig=True)
    code = """
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(0)
print("go", flush=True)
while True:
    n.nvmlGpuInstanceDestroy(n.nvmlDeviceCreateGpuInstance(h, 19))
"""
    for _ in range(4):
        with child(code, machine) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "go\n"
            machine.wait_calls(
                "nvmlGpuInstanceDestroy", machine.calls("nvmlGpuInstanceDestroy") + 5
            )
            other.kill()
    began = time.monotonic()
    left = machine.snapshot().get(0, [])
    assert len(left) <= 4
    for instance in left:
        n.nvmlGpuInstanceDestroy(n.nvmlDeviceGetGpuInstanceById(gpu, instance.gi))
    assert time.monotonic() - began < 1
    assert len([n.nvmlDeviceCreateGpuInstance(gpu, 19) for _ in range(7)]) == 7


def test_a_crash_with_the_lock_held_frees_it(nvml, make_machine) -> None:
    machine = make_machine()
    gpu = start()
    machine.rule("nvmlDeviceGetSerial", ret=-1, times=1)
    code = "n.nvmlInit(); n.nvmlDeviceGetSerial(n.nvmlDeviceGetHandleByIndex(0))"
    with child(code, machine) as other:
        assert other.wait(timeout=20) == -signal.SIGABRT
    assert n.nvmlDeviceGetSerial(gpu) == machine.gpu(0).get("serial")


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_takes_its_own_lock(nvml, make_machine) -> None:
    """Parent and child create and destroy at once: a shared lock would let them interfere."""
    make_machine()
    gpu = start(mig=True)
    pid = os.fork()
    made = 0
    for _ in range(2000):
        made += code_of(
            lambda: n.nvmlGpuInstanceDestroy(n.nvmlDeviceCreateGpuInstance(gpu, 0))
        ) in {
            0,
            n.NVML_ERROR_INSUFFICIENT_RESOURCES,
        }
    if pid == 0:
        os._exit(0 if made == 2000 else 1)
    _, status = os.waitpid(pid, 0)
    assert (made, status) == (2000, 0)


def test_threads_make_and_destroy_without_a_slip(nvml, make_machine) -> None:
    machine = make_machine()
    gpu = start(mig=True)
    codes: set[int] = set()

    def hammer() -> None:
        for _ in range(200):
            codes.add(
                code_of(lambda: n.nvmlGpuInstanceDestroy(n.nvmlDeviceCreateGpuInstance(gpu, 15)))
            )

    threads = [threading.Thread(target=hammer) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes <= {0, n.NVML_ERROR_INSUFFICIENT_RESOURCES}
    assert machine.snapshot() == {}


def test_a_call_that_hangs_survives_a_shutdown_and_a_new_machine(nvml, make_machine) -> None:
    machine = make_machine()
    gpu = start()
    machine.rule("nvmlDeviceGetSerial", delay_ms=200)
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(code_of(n.nvmlDeviceGetSerial, gpu)))
    thread.start()
    machine.wait_calls("nvmlDeviceGetSerial", 1)
    n.nvmlShutdown()
    make_machine("a30x4")
    n.nvmlInit()
    thread.join()
    assert codes == [n.NVML_ERROR_UNINITIALIZED]
    assert n.nvmlDeviceGetName(n.nvmlDeviceGetHandleByIndex(0)) == "NVIDIA A30"
