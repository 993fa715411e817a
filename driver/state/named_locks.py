"""Locks named by strings between processes, as between threads, on one file.

Why it exists: during a rolling update two plugins run on one node, and what one does to a claim or
a GPU must not mix with what the other does. A name is one byte of the file, at an offset that is a
hash of the name; locks on bytes need no data there, so the file stays empty and is never removed.
They belong to the open file description, not to the process: closing another descriptor of the file
does not drop them, and the kernel frees them when the process dies, however it dies.

Must not know what a name protects.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import struct
import threading
import time
from pathlib import Path
from typing import Final

from driver.state.failures import state_error
from driver.state.thread_locks import ThreadLocks

_RETRY: Final = 0.05
"""Seconds between two tries where another process holds it: fcntl(2) can wait for a lock for ever
or not at all, and cannot be told to end. Between threads nothing is tried, they are woken."""
_OFFSET_BITS: Final = 62
_ELSEWHERE: Final = "another plugin process of this node (a pod that is being replaced?)"
_TAKEN: Final = frozenset({errno.EAGAIN, errno.EACCES})


class NamedLocks:
    """Implements `driver.ports.state.Locks`. The file is made when the first name is taken."""

    def __init__(self, path: Path, *, retry: float = _RETRY) -> None:
        self._path = path
        self._retry = retry
        self._threads = ThreadLocks()
        self._opening = threading.Lock()
        self._fd: int | None = None

    def take(self, name: str, *, by: str, patience: float) -> str:
        """StateError where the file cannot be used."""
        deadline = time.monotonic() + patience
        # First between threads: to the kernel they are one holder.
        holder = self._threads.take(name, by=by, patience=patience)
        if holder:
            return holder
        try:
            had = self._take_file(name, deadline)
        except BaseException:
            self._threads.give(name)
            raise
        if not had:
            self._threads.give(name)
            return _ELSEWHERE
        return ""

    def give(self, name: str) -> None:
        try:
            self._fcntl(name, fcntl.F_UNLCK)
        finally:
            self._threads.give(name)

    def _take_file(self, name: str, deadline: float) -> bool:
        while not self._fcntl(name, fcntl.F_WRLCK):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(self._retry, left))
        return True

    def _fcntl(self, name: str, how: int) -> bool:
        """Whether it could be done: False where another process has the byte."""
        # struct flock: type, whence (0: from the start), offset, length, pid (must be 0).
        request = struct.pack("hhqqi4x", how, os.SEEK_SET, offset(name), 1, 0)
        try:
            fcntl.fcntl(self._file(), fcntl.F_OFD_SETLK, request)
        except OSError as error:
            if error.errno in _TAKEN:
                return False
            raise state_error("cannot lock", self._path, error) from error
        return True

    def _file(self) -> int:
        with self._opening:
            if self._fd is None:
                try:
                    self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                except OSError as error:
                    raise state_error("cannot open the lock", self._path, error) from error
            return self._fd


def offset(name: str) -> int:
    """Where the byte of a name is. Two names with one offset would only wait for each other."""
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:8]) >> (64 - _OFFSET_BITS)
