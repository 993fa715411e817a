"""One process of the control plane: started, awaited, measured, ended by its pid.

Must not know what it runs. A component that ends by itself is an error, told with its log's end.
"""

from __future__ import annotations

import os
import select
import shutil
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hack.kind.shell import Failure, require, tail

TICKS: Final = os.sysconf("SC_CLK_TCK")
PAUSE: Final = 0.1
"""Seconds between two looks at a component that cannot tell when it is ready."""


class Component:
    """`argv[0]` is a program in `binaries`. The kernel ends it if this process dies."""

    def __init__(self, argv: Sequence[str], *, binaries: Path, log: Path) -> None:
        require("setpriv")
        self.name = argv[0]
        self._log = log
        with log.open("ab") as stream:
            self._child = subprocess.Popen(
                # setpriv replaces itself with the program: the pid is the program's.
                ["setpriv", "--pdeathsig", "KILL", "--", str(binaries / argv[0]), *argv[1:]],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
        self._handle = os.pidfd_open(self._child.pid)

    @property
    def pid(self) -> int:
        return self._child.pid

    def await_ready(self, url: str, *, timeout: float) -> None:
        """Until `url` answers with 2xx. Loopback only: the certificate is not checked."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        deadline = time.monotonic() + timeout
        said = "nothing"
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(url, timeout=5, context=context):
                    return
            except urllib.error.HTTPError as error:
                with error:
                    said = f"{error.code} {error.read(400).decode(errors='replace')}"
            except OSError as error:
                said = str(error)
            if select.select([self._handle], [], [], PAUSE)[0]:
                raise Failure(
                    f"{self.name} ended with {self._child.wait()};"
                    f" {self._log} says:\n{tail(self._log)}"
                )
        raise Failure(
            f"{self.name} was not ready within {timeout:.0f} s, {url} said {said};"
            f" {self._log} says:\n{tail(self._log)}"
        )

    def cpu_seconds(self) -> float:
        """User and system time so far."""
        return cpu_ticks(Path(f"/proc/{self.pid}/stat").read_text()) / TICKS

    def stop(self) -> None:
        """At once: nothing that it wrote is needed any more."""
        self._child.kill()
        self._child.wait()
        os.close(self._handle)


def cpu_ticks(stat: str) -> int:
    """utime and stime of /proc/PID/stat; the name before them may hold spaces and brackets."""
    fields = stat.rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def keep_logs(folder: Path, where: Path) -> None:
    """Copies the logs out of a folder that is about to be removed."""
    where.mkdir(parents=True, exist_ok=True)
    for log in folder.glob("*.log"):
        shutil.copy(log, where / log.name)
