"""The system calls of the kernel log's reader.

Why it exists: a test must be able to give any answer that the kernel may give, and to end a wait.
Must not know records.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Device:
    """One method for each call."""

    def open(self, path: Path) -> int:
        # A FIFO stands in for it where tests write it. Opened for both ends, it has no end either.
        how = os.O_RDWR if path.is_fifo() else os.O_RDONLY
        return os.open(path, how | os.O_NONBLOCK | os.O_CLOEXEC)

    def read(self, fd: int, size: int) -> bytes:
        return os.read(fd, size)

    def skip(self, fd: int) -> None:
        os.lseek(fd, 0, os.SEEK_END)

    def close(self, fd: int) -> None:
        os.close(fd)


@contextmanager
def wake_pipe(stop: threading.Event) -> Iterator[int]:
    """A descriptor that becomes readable when `stop` is set."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    lock = threading.Lock()
    over = False

    def pass_on() -> None:
        stop.wait()
        with lock:
            if not over:
                os.write(writer, b"x")

    threading.Thread(target=pass_on, name="kernel-log-stop", daemon=True).start()
    try:
        yield reader
    finally:
        with lock:
            over = True
            os.close(reader)
            os.close(writer)
