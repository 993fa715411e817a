"""Long-lived processes of ours: who they are, when they are ready, how they end.

Why it exists: a number in a pid file proves nothing after a crash; the kernel hands numbers out
again. A process is itself only if its start time and the machine's boot are the recorded ones.

Must not know: what the processes do.
"""

import json
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from hack.kind.shell import Failure, tail

PROC = Path("/proc")
# Daemons that outlive their block. Python complains of a child that nobody refers to.
_RUNNING: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """`started`: field 22 of /proc/PID/stat, in clock ticks since boot; `boot`: the boot's id."""

    pid: int
    started: int
    boot: str

    @classmethod
    def of(cls, pid: int, *, proc: Path = PROC) -> "Identity | None":
        """Who has this pid now, or None. A zombie is nobody."""
        try:
            stat = (proc / str(pid) / "stat").read_text()
            boot = (proc / "sys/kernel/random/boot_id").read_text().strip()
        except (FileNotFoundError, ProcessLookupError):
            return None
        # The command's name may hold spaces and brackets; what follows its last bracket is fixed.
        state, *fields = stat.rpartition(")")[2].split()
        return None if state in "ZX" else cls(pid=pid, started=int(fields[18]), boot=boot)

    def alive(self, *, proc: Path = PROC) -> bool:
        return Identity.of(self.pid, proc=proc) == self

    def save(self, path: Path) -> None:
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(self)))
        partial.rename(path)

    @classmethod
    def load(cls, path: Path) -> "Identity | None":
        """The record of a process, or None where there is none or a crash left half of one."""
        try:
            fields = json.loads(path.read_text())
            return cls(
                pid=int(fields["pid"]), started=int(fields["started"]), boot=str(fields["boot"])
            )
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None


def end(who: Identity, how: signal.Signals, *, timeout: float) -> bool:
    """Signal the process if it is still the recorded one, and wait for its end."""
    try:
        handle = os.pidfd_open(who.pid)
    except ProcessLookupError:
        return True
    try:
        if not who.alive():
            return True
        signal.pidfd_send_signal(handle, how)
        return bool(select.select([handle], [], [], timeout)[0])
    except ProcessLookupError:
        return True
    finally:
        os.close(handle)


def children(pid: int) -> list[int]:
    """Direct children, in order of their start."""
    try:
        return [int(word) for word in (PROC / f"{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


@contextmanager
def daemon(
    argv: Sequence[str], log: Path, *, env: Mapping[str, str], timeout: float
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a daemon that speaks sd_notify, and go on when it says READY=1.

    The daemon outlives the block; if the block fails, or readiness never comes, it is killed.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tessera-notify-") as folder:
        address = f"{folder}/socket"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as inbox, log.open("ab") as stream:
            inbox.bind(address)
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
                env={**env, "NOTIFY_SOCKET": address},
            )
            try:
                _await_ready(child, inbox, log, timeout)
                yield child
                _RUNNING.append(child)
            except BaseException:
                child.kill()
                child.wait()
                raise


def _await_ready(
    child: subprocess.Popen[bytes], inbox: socket.socket, log: Path, timeout: float
) -> None:
    deadline = time.monotonic() + timeout
    handle = os.pidfd_open(child.pid)
    try:
        while (left := deadline - time.monotonic()) > 0:
            ready = select.select([inbox.fileno(), handle], [], [], left)[0]
            if inbox.fileno() in ready and b"READY=1" in inbox.recv(4096):
                return
            if handle in ready:
                raise Failure(f"it ended with {child.wait()}; {log} says:\n{tail(log)}")
    finally:
        os.close(handle)
    raise Failure(f"it was not ready within {timeout:.0f} s; {log} says:\n{tail(log)}")
