"""One process at a time: an exclusive lock on a file, for a bounded time.

Why it exists: during a rolling update two plugins run on one node, and their changes must not mix.
The kernel lets go of the lock when the holder dies, however it dies; so the file is never removed,
and what is written in it only names the holder to people (its PID may be of another namespace).

Must not know what it protects.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Final

from driver.core.errors import StateError
from driver.state.failures import state_error

_RETRY: Final = 0.05
"""Seconds between two tries: flock(2) has no time limit, and a blocked one could not be stopped."""
_HOLDER_BYTES: Final = 256


class FileLock:
    """Also between threads: each `held` opens the file anew."""

    def __init__(
        self,
        path: Path,
        *,
        holder: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._holder = holder or f"process {os.getpid()} on {os.uname().nodename}"
        self._clock = clock

    @contextmanager
    def held(self, *, timeout: float, stop: Event) -> Iterator[None]:
        """StateError names the holder where the lock is not free within `timeout` seconds."""
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise state_error("cannot open the lock", self._path, error) from error
        try:
            self._acquire(fd, timeout, stop)
            self._sign(fd, self._holder)
            yield
        finally:
            os.close(fd)

    def _acquire(self, fd: int, timeout: float, stop: Event) -> None:
        deadline = self._clock() + timeout
        while not self._try(fd):
            left = deadline - self._clock()
            if left <= 0:
                raise StateError(
                    f"the lock {self._path} is held by {_read(fd)} for more than {timeout:g} s;"
                    " it is given on when that process ends (a pod that is being replaced?)"
                )
            if stop.wait(min(_RETRY, left)):
                raise StateError(f"stopped while waiting for the lock {self._path}")

    def _try(self, fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise state_error("cannot lock", self._path, error) from error
        return True

    def _sign(self, fd: int, holder: str) -> None:
        try:
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{holder}\n".encode(), 0)
        except OSError as error:
            raise state_error("cannot write the lock", self._path, error) from error


def _read(fd: int) -> str:
    return os.pread(fd, _HOLDER_BYTES, 0).decode(errors="replace").strip() or "an unknown process"
