"""One child process with bounded output, awaited by events and never for longer than asked.

Why not `subprocess.communicate`: it keeps all that a child prints, waits for whoever inherited the
pipe, and after a kill waits for ever. A process that the kernel cannot end (state D) must be left
behind by the caller, and reaped when it goes at last.

Must not know what the child does.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Final, Protocol

MOST_OUTPUT: Final = 16 * 1024
"""Bytes of each stream. A child that writes more is not one of ours, and is ended."""
_CHUNK: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """`status`: the exit code, or minus the signal. `overflowed`: ended by us for its output."""

    status: int
    output: bytes
    errors: bytes
    overflowed: bool = False


class Child(Protocol):
    """What the prober needs of a process; tests have one that does not die."""

    @property
    def pid(self) -> int: ...
    def wait(self, seconds: float) -> Ended | None:
        """None: it still runs after that long."""
        ...

    def kill(self) -> None:
        """Returns at once. Harmless for one that has ended."""
        ...

    def leave(self) -> None:
        """Reads its output no more. `reap` must still be called until it says True."""
        ...

    def reap(self) -> bool:
        """Has it ended? Never waits."""
        ...


class ChildProcess:
    """Implements `Child`. One thread at a time; `kill` may come from any."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd="/",
        )
        try:
            self._end = os.pidfd_open(self._process.pid)
        except OSError:
            self._process.kill()
            self._process.communicate()
            raise
        assert self._process.stdout is not None  # noqa: S101 (PIPE was asked for)
        assert self._process.stderr is not None  # noqa: S101
        self._streams: dict[int, IO[bytes]] = {
            stream.fileno(): stream for stream in (self._process.stdout, self._process.stderr)
        }
        self._kept: dict[int, bytearray] = {fd: bytearray() for fd in self._streams}
        for fd in self._streams:
            os.set_blocking(fd, False)

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self, seconds: float) -> Ended | None:
        deadline = time.monotonic() + seconds
        overflowed = False
        with selectors.DefaultSelector() as selector:
            for fd in (self._end, *self._streams):
                selector.register(fd, selectors.EVENT_READ)
            while True:
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    return None
                fds = {key.fd for key, _ in ready}
                for fd in fds - {self._end}:
                    if not self._read(fd):
                        selector.unregister(fd)
                if not overflowed and any(len(k) > MOST_OUTPUT for k in self._kept.values()):
                    overflowed = True
                    self.kill()
                if self._end in fds:
                    return self._collect(overflowed=overflowed)

    def kill(self) -> None:
        self._process.kill()

    def leave(self) -> None:
        for stream in self._streams.values():
            stream.close()

    def reap(self) -> bool:
        if self._process.poll() is None:
            return False
        self._close()
        return True

    def _collect(self, *, overflowed: bool) -> Ended:
        """What was written before the end is still in the pipes."""
        for fd in self._streams:
            while self._read(fd) and len(self._kept[fd]) <= MOST_OUTPUT:
                pass
        status = self._process.wait()
        self._close()
        output, errors = (bytes(kept[:MOST_OUTPUT]) for kept in self._kept.values())
        return Ended(status=status, output=output, errors=errors, overflowed=overflowed)

    def _read(self, fd: int) -> bool:
        """False: there is no more. Bytes beyond the bound are read and dropped."""
        try:
            chunk = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        room = MOST_OUTPUT + 1 - len(self._kept[fd])
        self._kept[fd] += chunk[: max(0, room)]
        return bool(chunk)

    def _close(self) -> None:
        self.leave()
        if self._end >= 0:
            os.close(self._end)
            self._end = -1
