"""What waits for what: claims on one GPU in turn, on different GPUs side by side."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from driver.core.errors import ClaimError
from driver.core.ids import GpuUuid
from driver.plugin.preparing.gpu_locks import GpuLocks
from driver.state.thread_locks import ThreadLocks

A, B = GpuUuid("GPU-a"), GpuUuid("GPU-b")


class Holder:
    """Somebody who has GPUs until told to let go."""

    def __init__(self, locks: GpuLocks, gpus: Sequence[GpuUuid], by: str) -> None:
        self.has, self.let_go = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._hold, args=(locks, gpus, by))
        self.thread.start()

    def _hold(self, locks: GpuLocks, gpus: Sequence[GpuUuid], by: str) -> None:
        with locks.held(gpus, by=by):
            self.has.set()
            self.let_go.wait(10)

    def end(self) -> None:
        self.let_go.set()
        self.thread.join(10)
        assert not self.thread.is_alive()


def test_claims_on_different_gpus_do_not_wait_for_each_other() -> None:
    locks = GpuLocks(ThreadLocks(), patience=10)
    holders = [Holder(locks, [gpu], "one") for gpu in (A, B)]
    assert all(h.has.wait(10) for h in holders)
    for each in holders:
        each.end()


def test_claims_on_one_gpu_go_in_turn() -> None:
    locks = GpuLocks(ThreadLocks(), patience=10)
    first = Holder(locks, [A], "one")
    assert first.has.wait(10)
    second = Holder(locks, [A, B], "two")
    assert not second.has.wait(0.05)
    first.end()
    assert second.has.wait(10)
    second.end()


def test_whoever_waited_too_long_is_told_for_whom_and_keeps_nothing() -> None:
    locks = GpuLocks(ThreadLocks(), patience=0.02)
    holder = Holder(locks, [B], "claim default/slow")
    assert holder.has.wait(10)
    with (
        pytest.raises(ClaimError, match=r"two: GPU GPU-b is busy with claim default/slow"),
        locks.held([A, B], by="two"),
    ):
        pytest.fail("the GPU was given twice")
    with locks.held([A], by="three"):
        holder.end()
    with locks.held([B, A, B], by="two"):
        pass


def test_an_error_gives_the_gpu_back() -> None:
    locks = GpuLocks(ThreadLocks(), patience=0.02)
    with pytest.raises(ZeroDivisionError), locks.held([A], by="one"):
        raise ZeroDivisionError
    with locks.held([A], by="two"):
        pass


def test_two_gpus_taken_in_opposite_order_never_lock_each_other_out() -> None:
    locks = GpuLocks(ThreadLocks(), patience=10)
    running: list[str] = []

    def work(gpus: Sequence[GpuUuid]) -> None:
        for _ in range(300):
            with locks.held(gpus, by="worker"):
                running.append("in")
                assert running == ["in"]
                running.pop()

    with ThreadPoolExecutor(4) as pool:
        orders = ([A, B], [B, A], [A, B], [B, A])
        assert list(pool.map(work, orders, timeout=30)) == [None] * 4
