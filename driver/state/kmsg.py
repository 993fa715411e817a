"""Reads the kernel's log from /dev/kmsg, record by record, and goes on from where it was.

Why it exists: a fault's line must not be lost because we were restarted, nor told twice, and a
reader must not stop for ever at a record that was overwritten or is too large. The place is the
boot id and a record's sequence number; another boot begins from the oldest record.

Must not know what a record says: it is handed on as it came. Source: the kernel's ABI document
`dev-kmsg`; one read gives one record, EPIPE says that the next one was overwritten.
"""

from __future__ import annotations

import errno
import logging
import re
import select
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from driver.core.errors import StateError
from driver.core.health.signals import NODE, CannotTell, Source, Well
from driver.ports.health import RawRecord, RecordSink, Sink
from driver.state.kmsg_device import Device, wake_pipe
from driver.state.kmsg_position import Position, PositionFile
from driver.state.kmsg_storm import Storm

log = logging.getLogger(__name__)

KMSG: Final = "kmsg"

_HEADER: Final = re.compile(rb"\d+,(\d+),(\d+),", re.ASCII)
_RECORD: Final = 8192
"""The kernel's own limit of a record, header and dictionary included."""
_LARGEST: Final = 1 << 20
_AT_ONCE: Final = 1000
"""Records between two looks at whether the place is to be stored."""
_PAUSES: Final = (1.0, 60.0)
_SAVE_SOON: Final = 1.0
_SAVE_LATE: Final = 30.0
"""Seconds after a record that mattered, and after any other. Not at once: writing takes long enough
to keep the next fault waiting, and faults come in bursts.
"""
_ASKED_AGAIN: Final = 1000.0
"""Milliseconds between two looks at whether what was read can be kept by now."""


@dataclass(slots=True)
class Counts:
    """Since our start. `lost`: records that were overwritten before we read them; `overrun`: how
    often that was so; `oversized`: records that no buffer took.
    """

    records: int = 0
    lost: int = 0
    overrun: int = 0
    oversized: int = 0
    unreadable: int = 0


class _EndedError(OSError):
    """The log ended, which the real one never does."""


class KernelLog:
    """Implements `driver.ports.health.HealthSource`."""

    name = "kernel-log"

    def __init__(
        self,
        path: Path,
        *,
        position: PositionFile,
        boot: Callable[[], str],
        on_record: RecordSink,
        sink: Sink,
        wait: Callable[[threading.Event], None] = lambda _: None,
        keeps: Callable[[], bool] = lambda: True,
        device: Device | None = None,
        clock: Callable[[], float] = time.time,
        uptime: Callable[[], float] = time.monotonic,
    ) -> None:
        """`wait` returns when the first record may be read. `keeps`: whether what was read is done
        with; while it is not, the place stays where it is, and the log is read again from there as
        soon as it is.
        """
        self.counts = Counts()
        self._path = path
        self._position = position
        self._boot = boot
        self._on_record = on_record
        self._sink = sink
        self._wait = wait
        self._keeps = keeps
        self._device = device or Device()
        self._clock = clock
        self._uptime = uptime
        self._buffer = _RECORD
        self._more = False
        self._mattered = False
        self._live = False
        self._again = False
        self._storm = Storm()
        self._boot_id = ""
        self._sequence = -1
        self._save_at: float | None = None

    def run(self, stop: threading.Event) -> None:
        pause, longest = _PAUSES
        self._wait(stop)
        with wake_pipe(stop) as woken:
            while not stop.is_set():
                before = self.counts.records
                try:
                    self._follow(stop, woken)
                except (OSError, StateError) as error:
                    self._tell_unreadable(error)
                if self.counts.records > before:
                    pause = _PAUSES[0]
                stop.wait(pause)
                pause = min(2 * pause, longest)

    def _follow(self, stop: threading.Event, woken: int) -> None:
        """Until the end, or an error that only opening anew may mend."""
        boot, known = self._boot(), self._position.read()
        if known is None or known.boot != boot:
            known = Position(boot=boot)
        self._boot_id, self._sequence = boot, known.sequence
        self._live, self._again = False, not self._keeps()
        fd = self._device.open(self._path)
        try:
            poll = select.poll()
            poll.register(fd, select.POLLIN | select.POLLPRI)
            poll.register(woken, select.POLLIN)
            told = False
            while not stop.is_set() and not (self._again and self._keeps()):
                self._drain(fd, stop)
                if not told:  # that it can be opened says little: a folder can be, too
                    self._sink(Well(source=Source.KERNEL, scope=NODE, name=KMSG, at=self._clock()))
                    told = True
                rest = self._rest()
                if rest == 0:
                    self._save()
                elif not self._more:
                    pause = self._storm.rest(mattered=self._mattered, now=self._uptime())
                    if pause:
                        stop.wait(pause)
                    poll.poll(rest)
        finally:
            self._device.close(fd)
            self._save()

    def _drain(self, fd: int, stop: threading.Event) -> None:
        """Bounded, so that a flood does not keep the place from being stored."""
        self._more, self._mattered = True, False
        for _ in range(_AT_ONCE):
            if stop.is_set():
                return
            data = self._read(fd)
            if data is None:
                self._more, self._live = False, True
                return
            if data:
                self._take(data)

    def _read(self, fd: int) -> bytes | None:
        """A record; empty where one was lost; None where there is no more for now."""
        try:
            data = self._device.read(fd, self._buffer)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno == errno.EPIPE:  # the position has moved to the oldest one there is
                self.counts.overrun += 1
                return b""
            if error.errno == errno.EINVAL:
                self._grow(fd)
                return b""
            raise
        if not data:
            raise _EndedError(errno.EIO, "the log has ended")
        return data

    def _grow(self, fd: int) -> None:
        """The record does not fit, and would be in the way for ever."""
        if self._buffer < _LARGEST:
            self._buffer *= 2
        else:
            self._buffer = _RECORD
            self.counts.oversized += 1
            self._device.skip(fd)

    def _take(self, data: bytes) -> None:
        """Hand on what is new. A record without a header is new: the reader of it says what it is.

        Numbers start at 0 at each boot and grow by one; a jump is what we have lost. The kernel's
        stamps are not steered as our clocks are, and drift from them by seconds in a long boot; so
        they date only what was there before we came.
        """
        header = _HEADER.match(data)
        at = self._clock()
        uptime = self._uptime()
        if header is not None:
            number, micros = int(header[1]), int(header[2])
            if number <= self._sequence:
                return
            self.counts.lost += number - self._sequence - 1 if self._sequence >= 0 else 0
            if not self._live:
                at -= max(0.0, uptime - micros / 1e6)
        mattered = self._on_record(RawRecord(data=data, at=at))
        if header is not None:
            self._sequence = number
        self._mattered |= mattered
        self.counts.records += 1
        if mattered or self._save_at is None:
            due = uptime + (_SAVE_SOON if mattered else _SAVE_LATE)
            self._save_at = due if self._save_at is None else min(due, self._save_at)

    def _rest(self) -> float | None:
        """Milliseconds until the place is to be stored; None: there is nothing to store."""
        if self._again:
            return _ASKED_AGAIN
        if self._save_at is None:
            return None
        return max(0.0, (self._save_at - self._uptime()) * 1000)

    def _save(self) -> None:
        """Records that do not matter may be read twice, so their place is kept rarely."""
        self._save_at = None
        if self._sequence < 0 or self._again or not self._keeps():
            return
        try:
            self._position.write(Position(boot=self._boot_id, sequence=self._sequence))
        except StateError as error:
            # Worse than not to know the place after a restart: not to read on now.
            log.warning(
                "place in the kernel log not stored, a restart may tell some records again",
                extra={"reason": str(error)},
            )

    def _tell_unreadable(self, error: Exception) -> None:
        self.counts.unreadable += 1
        text = str(error) if isinstance(error, StateError) else f"{self._path}: {error}"
        self._sink(
            CannotTell(
                source=Source.KERNEL,
                scope=NODE,
                name=KMSG,
                at=self._clock(),
                detail=f"the kernel log cannot be read: {text}; the plugin must run as root with"
                " the host's /dev/kmsg mounted",
            )
        )
