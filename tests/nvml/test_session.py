"""Many threads in NVML at once, and what closing means for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from driver.core.errors import DriverNotLoaded, GpuLost, InstanceLeft, InUse
from driver.nvml import NvmlLibrary
from driver.nvml.session import Session
from tests.nvml.conftest import Topology
from tests.nvml.migs import Cut, cut

CREATE = "nvmlDeviceCreateGpuInstanceWithPlacement"
BY_UUID = "nvmlDeviceGetHandleByUUID"


def test_eight_gpus_are_cut_in_the_time_of_one(make_node) -> None:
    node = make_node("dgx-h100")
    gpus = [cut(node, index) for index in range(8)]
    profile = gpus[0].profile()
    with node.machine.rule(CREATE, delay_ms=200):
        began = time.monotonic()
        gpus[0].create(profile, 6)
        one = time.monotonic() - began
        with ThreadPoolExecutor(8) as pool:
            began = time.monotonic()
            list(pool.map(lambda gpu: gpu.create(profile), gpus))
            eight = time.monotonic() - began
    assert one >= 0.2
    assert eight < 2 * one
    assert [len(gpu.instances()) for gpu in gpus] == [2, *[1] * 7]


def test_the_others_are_read_while_one_is_cut(make_node) -> None:
    node = make_node("h100x2")
    gpu, other = cut(node), Cut(node=node, index=1)
    profile = gpu.profile()
    with node.machine.rule(CREATE, delay_ms=400), ThreadPoolExecutor(1) as pool:
        making = pool.submit(gpu.create, profile)
        node.machine.wait_calls(CREATE, 1)
        assert len(node.snapshot().gpus) == 2
        assert not other.partitions.mode(other.uuid).enabled
        assert not making.done()
        assert making.result() == gpu.instances()[0].id


def test_a_handle_comes_from_the_snapshot_and_else_is_looked_up_once(make_node) -> None:
    node = make_node("h100x1")
    gpu = Cut(node=node)
    gpu.partitions.mode(gpu.uuid)
    gpu.partitions.mode(gpu.uuid)
    assert node.machine.calls(BY_UUID) == 1
    node.library.close()
    node.snapshot()
    gpu.partitions.mode(gpu.uuid)
    assert node.machine.calls(BY_UUID) == 1


def test_after_an_error_that_is_no_answer_the_handle_is_looked_up_anew(make_node) -> None:
    gpu = cut(make_node("h100x1"))
    instance = gpu.create()
    gpu.compute(instance)
    with pytest.raises(InUse):
        gpu.partitions.destroy(gpu.uuid, instance)
    assert gpu.machine.calls(BY_UUID) == 0
    gpu.sim.lose()
    with pytest.raises(GpuLost):
        gpu.partitions.mode(gpu.uuid)
    gpu.sim.reset()
    assert gpu.partitions.mode(gpu.uuid).enabled
    assert gpu.machine.calls(BY_UUID) == 1


def test_close_waits_for_those_who_are_inside_and_then_unloads(make_node) -> None:
    node = make_node("h100x1")
    gpu = cut(node)
    profile = gpu.profile()
    with node.machine.rule(CREATE, delay_ms=300), ThreadPoolExecutor(1) as pool:
        making = pool.submit(gpu.create, profile)
        node.machine.wait_calls(CREATE, 1)
        node.library.close()
        assert making.result(timeout=1) >= 0
        assert not node.mapped()
    assert node.symbols()[-1] == "nvmlShutdown"
    assert len(gpu.instances()) == 1


def test_a_driver_that_goes_while_others_are_inside_is_let_go_of_by_the_last(make_node) -> None:
    node = make_node("h100x1")
    gpu = cut(node)
    profile = gpu.profile()
    with node.machine.rule(CREATE, delay_ms=300), ThreadPoolExecutor(1) as pool:
        making = pool.submit(gpu.create, profile)
        node.machine.wait_calls(CREATE, 1)
        node.machine.driver_loaded(False)
        with pytest.raises(DriverNotLoaded):
            node.snapshot()
        assert node.mapped()
        left = making.exception(timeout=2)
        assert isinstance(left, InstanceLeft)
        assert isinstance(left.__cause__, DriverNotLoaded)
    assert not node.mapped()
    node.machine.driver_loaded(True)
    assert len(node.snapshot().gpus) == 1


@contextmanager
def hanging(session: Session) -> Iterator[threading.Event]:
    """A thread inside the library until the event is set."""
    entered, released = threading.Event(), threading.Event()

    def hang() -> None:
        with session.inside():
            entered.set()
            released.wait()

    thread = threading.Thread(target=hang)
    thread.start()
    entered.wait()
    try:
        yield released
    finally:
        released.set()
        thread.join()


def test_a_call_that_hangs_delays_close_for_a_while_and_the_unloading_until_it_returns(
    make_node, caplog
) -> None:
    node = make_node("h100x1")
    library = NvmlLibrary(
        driver_root=node.root, topology=Topology(sys=node.root / "sys"), patience=0.05
    )
    with hanging(library.session) as released:
        library.close()
        assert node.mapped()
        (line,) = caplog.records
        assert (line.calls, line.waited_s) == (1, 0.05)
        with pytest.raises(InUse, match=r"1 of its calls have not returned for 0\.05 s"):
            library.snapshot()
        assert node.machine.calls("nvmlShutdown") == 0
        released.set()
    assert not node.mapped()
    assert len(library.snapshot().gpus) == 1
    library.close()


def test_an_opening_that_hangs_keeps_nobody_longer_than_its_patience(make_node) -> None:
    node = make_node("h100x1")
    library = NvmlLibrary(
        driver_root=node.root, topology=Topology(sys=node.root / "sys"), patience=0.05
    )
    hangs = ThreadPoolExecutor(1, thread_name_prefix="first")
    with node.machine.rule("nvmlInit*", delay_ms=2000), hangs as pool:
        opening = pool.submit(library.snapshot)
        node.machine.wait_calls("nvmlInit*", 1)
        with pytest.raises(InUse, match=r"opened by first_0, .* not returned for 0\.05 s"):
            library.snapshot()
        assert library.session.held
        assert library.close_idle(0) == 0
        library.close()
        assert not opening.done()
        assert len(opening.result().gpus) == 1
    assert not node.mapped()
    assert len(library.snapshot().gpus) == 1
    library.close()


def test_who_comes_while_it_is_being_closed_waits_and_gets_the_new_library(make_node) -> None:
    node = make_node("h100x1")
    session = node.library.session
    gone = DriverNotLoaded("it went", call="nvmlDeviceGetCount", code=9)
    with ThreadPoolExecutor(1) as pool:
        with hanging(session):
            with pytest.raises(DriverNotLoaded), session.inside():
                raise gone
            file = node.library_file()
            fresh = file.with_name("fresh")
            fresh.write_bytes(file.read_bytes())
            fresh.replace(file)
            late = pool.submit(node.snapshot)
            with pytest.raises(TimeoutError):
                late.result(timeout=0.1)
        assert len(late.result().gpus) == 1
    assert node.mapped() == {node.library_file().stat().st_ino}


def test_who_asks_for_nothing_holds_no_file_of_the_driver_and_opens_it_again(make_node) -> None:
    node = make_node("h100x1")
    assert node.library.close_idle(60) == 60
    node.snapshot()
    assert 0 < node.library.close_idle(60) <= 60
    assert node.mapped()
    with hanging(node.library.session) as released:
        assert node.library.close_idle(0) == 0
        assert node.mapped()
        released.set()
    assert node.library.close_idle(0) == 0
    assert not node.mapped()
    assert node.symbols()[-1] == "nvmlShutdown"
    assert len(node.snapshot().gpus) == 1
