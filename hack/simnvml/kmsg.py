"""A kernel log that tests can write to: a FIFO in packet mode stands in for /dev/kmsg.

Why it exists: what is written into the real one goes to every reader of the machine and stays until
the next boot, and only the kernel can write as the kernel. In packet mode (pipe(7), O_DIRECT) one
write is one read, as one record is there.

Not there: the records of before; who opens it gets what is written from then on.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hack.simnvml.kit import Machine

KERNEL, USER = 0, 1


def make(folder: Path) -> Path:
    """The FIFO of a machine's folder; one that is there stays."""
    path = folder / "kmsg"
    if not path.exists():
        os.mkfifo(path, 0o600)
    return path


class KernelLog:
    """The writing end. A later one goes on with higher numbers, as a reader expects."""

    def __init__(self, path: Path) -> None:
        # For both ends: it neither waits for a reader nor ends with the last writer.
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        # Not in open(2): a file system may refuse it there, also for a FIFO.
        fcntl.fcntl(self._fd, fcntl.F_SETFL, os.O_DIRECT)
        self._sequence = time.monotonic_ns() // 1000

    def write(self, text: str, *, facility: int = KERNEL, level: int = 3) -> None:
        """One record, as of now. It waits while the reader is far behind."""
        micros = time.monotonic_ns() // 1000
        head = f"{facility << 3 | level},{self._sequence},{micros},-;"
        self._sequence += 1
        os.write(self._fd, f"{head}{text}\n".encode())

    def close(self) -> None:
        os.close(self._fd)


@contextmanager
def opened(machine_folder: Path) -> Iterator[KernelLog]:
    log = KernelLog(make(machine_folder))
    try:
        yield log
    finally:
        log.close()


def address(machine: Machine, slot: int) -> str:
    """As the driver writes it: `0000:1b:00`."""
    return str(machine.gpus[slot].pci).rpartition(".")[0].lower()[-10:]
