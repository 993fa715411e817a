"""The kernel log's reader: over a stand-in that gives one record a read, and the real device."""

from __future__ import annotations

import errno
import os
import queue
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from driver.core.errors import StateError
from driver.core.health.signals import CannotTell, Signal, Well
from driver.ports.health import RawRecord
from driver.state.kmsg import KernelLog
from driver.state.kmsg_device import Device
from driver.state.kmsg_position import Position, PositionFile
from driver.state.kmsg_storm import REST

T = TypeVar("T", Well, CannotTell)

BOOT = "11111111-2222-3333-4444-555555555555"


def record(number: int, text: str = "line", micros: int = 5_000_000) -> bytes:
    return f"6,{number},{micros},-;{text}\n".encode()


class Ring(Device):
    """A log of which the oldest part may be overwritten, opened at its oldest record."""

    def __init__(self) -> None:
        self.log: list[bytes | int] = []
        self._readers: dict[int, tuple[int, socket.socket]] = {}
        self._bells: list[socket.socket] = []
        self.opened = 0
        self.refuse: OSError | None = None
        self.sizes: list[int] = []

    def put(self, *records: bytes | int) -> None:
        """Bytes are a record; a number is the error that one read gives."""
        self.log.extend(records)
        for bell in self._bells:
            bell.send(b"x")

    def open(self, path: Path) -> int:  # noqa: ARG002 - there is one log
        self.opened += 1
        if self.refuse:
            raise self.refuse
        ours, bell = socket.socketpair()
        self._bells.append(bell)
        if self.log:
            bell.send(b"x")
        self._readers[ours.fileno()] = (0, ours)
        return ours.fileno()

    def read(self, fd: int, size: int) -> bytes:
        self.sizes.append(size)
        at, ours = self._readers[fd]
        while at == len(self.log):
            assert ours.recv(4096, socket.MSG_DONTWAIT)  # raises BlockingIOError when drained
        found = self.log[at]
        if isinstance(found, bytes) and len(found) > size:
            raise OSError(errno.EINVAL, "too small")
        self._readers[fd] = (at + 1, ours)
        if isinstance(found, int):
            raise OSError(found, os.strerror(found))
        return found

    def skip(self, fd: int) -> None:
        self._readers[fd] = (len(self.log), self._readers[fd][1])

    def close(self, fd: int) -> None:
        self._readers.pop(fd)[1].close()
        for bell in self._bells:
            bell.close()
        self._bells.clear()


class Run:
    """One life of the reader."""

    def __init__(self, log: KernelLog, got: queue.Queue[RawRecord], said: list[Signal]) -> None:
        self.log = log
        self.got = got
        self.said = said
        self._stop = threading.Event()
        self._thread = threading.Thread(target=log.run, args=(self._stop,), daemon=True)
        self._thread.start()

    def numbers(self, count: int) -> list[int]:
        return [int(self.got.get(timeout=5).data.split(b",")[1]) for _ in range(count)]

    def said_of(self, kind: type[T]) -> T:
        deadline = time.monotonic() + 5
        while not (found := [s for s in self.said if isinstance(s, kind)]):
            assert time.monotonic() < deadline, self.said
            threading.Event().wait(0.01)
        return found[0]

    def end(self) -> None:
        self._stop.set()
        self._thread.join(5)
        assert not self._thread.is_alive()


@pytest.fixture
def start(tmp_path) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def make(
        device: Device,
        *,
        boot: str = BOOT,
        path: Path = Path("/dev/kmsg"),
        matters: bool = True,
        keeps: Callable[[], bool] = lambda: True,
    ) -> Run:
        got: queue.Queue[RawRecord] = queue.Queue()
        said: list[Signal] = []

        def take(each: RawRecord) -> bool:
            got.put(each)
            return matters

        log = KernelLog(
            path,
            position=PositionFile(tmp_path),
            boot=lambda: boot,
            on_record=take,
            sink=lambda *signals: said.extend(signals),
            keeps=keeps,
            device=device,
        )
        runs.append(Run(log, got, said))
        return runs[-1]

    yield make
    for each in runs:
        each.end()


def test_records_are_handed_on_in_order_and_as_they_are_written(start) -> None:
    ring = Ring()
    ring.put(record(0), record(1))
    run = start(ring)
    assert run.numbers(2) == [0, 1]
    began = time.monotonic()
    ring.put(record(2))
    assert run.numbers(1) == [2]
    assert time.monotonic() - began < 2  # milliseconds, on a machine that is not busy
    assert run.said_of(Well).name == "kmsg"


def test_what_was_there_before_us_has_the_kernels_time_and_what_comes_later_ours(start) -> None:
    ring = Ring()
    slow = int((time.monotonic() - 100) * 1e6)
    ring.put(record(0, micros=slow))
    run = start(ring)
    now = time.time()
    assert run.got.get(timeout=5).at == pytest.approx(now - 100, abs=2)
    run.said_of(Well)
    ring.put(record(1, micros=slow))
    assert run.got.get(timeout=5).at == pytest.approx(now, abs=2)


def test_what_can_not_be_kept_yet_is_read_again_as_soon_as_it_can(start, tmp_path) -> None:
    ring, known = Ring(), threading.Event()
    ring.put(record(0), record(1))
    run = start(ring, keeps=known.is_set)
    assert run.numbers(2) == [0, 1]
    run.end()
    assert PositionFile(tmp_path).read() is None
    run = start(ring, keeps=known.is_set)
    assert run.numbers(2) == [0, 1]
    known.set()
    assert run.numbers(2) == [0, 1]
    run.end()
    assert PositionFile(tmp_path).read() == Position(boot=BOOT, sequence=1)


def test_d11_a_restart_in_the_same_boot_repeats_nothing_and_loses_nothing(start) -> None:
    ring = Ring()
    ring.put(*(record(n) for n in range(5)))
    first = start(ring)
    assert first.numbers(5) == [0, 1, 2, 3, 4]
    first.end()
    ring.put(*(record(n) for n in range(5, 8)))
    second = start(ring)
    assert second.numbers(3) == [5, 6, 7]
    assert second.got.empty()
    assert second.log.counts.lost == 0


def test_d11_another_boot_is_read_from_its_oldest_record(start) -> None:
    ring = Ring()
    ring.put(*(record(n) for n in range(5)))
    start(ring).end()
    fresh = Ring()
    fresh.put(record(0), record(1))
    assert start(fresh, boot="another").numbers(2) == [0, 1]


def test_d12_an_overwritten_record_is_counted_and_reading_goes_on(start) -> None:
    ring = Ring()
    ring.put(record(0), errno.EPIPE, record(9))
    run = start(ring)
    assert run.numbers(2) == [0, 9]
    assert (run.log.counts.overrun, run.log.counts.lost, ring.opened) == (1, 8, 1)


def test_what_was_overwritten_while_we_were_not_there_is_counted(start) -> None:
    ring = Ring()
    ring.put(record(0))
    first = start(ring)
    first.numbers(1)
    first.end()
    ring.log = [record(100)]
    second = start(ring)
    assert second.numbers(1) == [100]
    assert second.log.counts.lost == 99


@pytest.mark.parametrize("size", [4000, 8192, 20_000])
def test_d12_a_large_record_gets_the_buffer_that_it_needs(start, size) -> None:
    ring = Ring()
    ring.put(record(0, "x" * (size - 20)), record(1))
    run = start(ring)
    assert run.numbers(2) == [0, 1]
    assert min(ring.sizes) >= 8192


def test_a_record_that_no_buffer_takes_is_passed_over(start) -> None:
    ring = Ring()
    ring.put(*[errno.EINVAL] * 8)
    run = start(ring)
    while not run.log.counts.oversized:
        threading.Event().wait(0.01)
    ring.put(record(3))
    assert run.numbers(1) == [3]


def test_a_log_that_cannot_be_opened_is_cannot_tell_and_is_tried_again(start) -> None:
    ring = Ring()
    ring.refuse = PermissionError(errno.EACCES, "Permission denied")
    run = start(ring)
    signal = run.said_of(CannotTell)
    assert signal.name == "kmsg"
    assert "/dev/kmsg" in signal.detail
    ring.refuse = None
    ring.put(record(0))
    assert run.numbers(1) == [0]
    assert run.said_of(Well)


def test_a_log_that_ends_is_not_read_in_a_hot_loop(start, tmp_path) -> None:
    empty = tmp_path / "kmsg"
    empty.touch()
    run = start(Device(), path=empty)
    assert "ended" in run.said_of(CannotTell).detail
    threading.Event().wait(0.5)
    assert run.log.counts.unreadable == 1


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch])
def test_a_log_that_opens_and_cannot_be_read_is_never_well(start, tmp_path, make) -> None:
    make(tmp_path / "kmsg")
    run = start(Device(), path=tmp_path / "kmsg")
    assert run.said_of(CannotTell).name == "kmsg"
    run.end()
    assert not [each for each in run.said if isinstance(each, Well)]


def test_lines_without_a_header_are_handed_on_and_end_nothing(start) -> None:
    ring = Ring()
    ring.put(b"\xff\xfe garbage", b"6,notanumber,1,-;x", record(4))
    run = start(ring)
    assert [run.got.get(timeout=5).data[:2] for _ in range(3)] == [b"\xff\xfe", b"6,", b"6,"]


def test_in_a_storm_of_harmless_records_more_are_waited_for_before_each_look(start) -> None:
    ring = Ring()
    run = start(ring, matters=False)
    began = time.monotonic()
    for n in range(80):
        ring.put(record(n))
        run.numbers(1)
        threading.Event().wait(0.003)  # so that the reader has found no more
    # On a machine too busy for a storm each look takes longer than the rest would.
    assert time.monotonic() - began > 40 * REST


def test_a_quiet_log_costs_nothing(start) -> None:
    ring = Ring()
    ring.put(record(0))
    run = start(ring)
    run.numbers(1)
    threading.Event().wait(0.1)
    reads, before = len(ring.sizes), resource.getrusage(resource.RUSAGE_SELF).ru_utime
    threading.Event().wait(0.5)
    assert len(ring.sizes) == reads
    assert resource.getrusage(resource.RUSAGE_SELF).ru_utime - before < 0.2


def test_the_place_is_stored_soon_only_after_what_matters(start, tmp_path) -> None:
    ring = Ring()
    run = start(ring, matters=False)
    ring.put(*(record(n) for n in range(3)))
    run.numbers(3)
    threading.Event().wait(0.1)
    written = PositionFile(tmp_path).read()
    assert written is None or written.sequence < 2
    run.end()
    assert PositionFile(tmp_path).read() == Position(boot=BOOT, sequence=2)
    again = start(ring)
    ring.put(record(3))
    again.numbers(1)
    deadline = time.monotonic() + 5
    while PositionFile(tmp_path).read() != Position(boot=BOOT, sequence=3):
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"boot": "x"}', '{"boot": "x", "sequence": "y"}'])
def test_a_damaged_place_is_as_good_as_none(tmp_path, text) -> None:
    (tmp_path / "kmsg.json").write_text(text)
    assert PositionFile(tmp_path).read() is None


def test_a_boot_id_that_cannot_be_read_is_cannot_tell(tmp_path) -> None:
    said: list[Signal] = []

    def no_boot() -> str:
        raise StateError("cannot read the boot id")

    log = KernelLog(
        tmp_path / "kmsg",
        position=PositionFile(tmp_path),
        boot=no_boot,
        on_record=lambda _: False,
        sink=lambda *signals: said.extend(signals),
    )
    run = Run(log, queue.Queue(), said)
    assert "boot id" in run.said_of(CannotTell).detail
    run.end()


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK | os.W_OK), reason="needs root's /dev/kmsg")
def test_the_real_kernel_log_is_read_and_a_line_of_ours_carries_the_user_facility(start) -> None:
    run = start(Device(), boot=Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    mark = f"tessera test {os.getpid()} {time.monotonic_ns()}"
    Path("/dev/kmsg").write_text(f"<6>{mark}\n")
    deadline = time.monotonic() + 5
    while True:
        assert time.monotonic() < deadline
        got = run.got.get(timeout=5)
        if mark.encode() in got.data:
            break
    priority = int(got.data.split(b",")[0])
    assert priority >> 3 == 1
    assert got.at == pytest.approx(time.time(), abs=5)
    assert run.log.counts.oversized == run.log.counts.unreadable == 0
