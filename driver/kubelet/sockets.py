"""Where the two sockets lie, what may be removed from there, and what stops us from starting.

Why it exists: the kubelet finds a plugin by the name of a socket, and two plugin pods of one driver
may run at once during a rolling update. So names carry the pod's UID, and a process removes only
its own sockets and those that nobody serves any more.

Must not know: gRPC.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import logging
import os
import re
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from driver.core.errors import ConfigError

log = logging.getLogger(__name__)

MAX_PATH: Final = 107
"""Bytes: `sun_path` of Linux holds 108 with the closing NUL."""

_UID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# A driver name has neither capitals nor underscores. A shortened UID with one of them can therefore
# not be the end of another driver's longer name; the rare one without is left lying.
_SHORT_UID: Final = r"(?=[\w-]*[A-Z_])[\w-]{11}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketPaths:
    """Absolute; the kubelet is told `service` as text, so it must be the same path on the host."""

    service: Path
    registration: Path


def socket_paths(
    *, driver: str, plugin_dir: Path, registrar_dir: Path, pod_uid: str = ""
) -> SocketPaths:
    """The names by which the kubelet and the next plugin pod know us; shortened where too long."""
    for what, value in (("driver name", driver), ("pod UID", pod_uid)):
        if "/" in value or "\0" in value:
            raise ConfigError(
                f"{what} {value!r} has a slash or NUL; it becomes part of a file name"
            )
    if not driver:
        raise ConfigError("driver name is empty; set it to a DNS subdomain such as gpu.example.com")
    suffixes = (f"-{pod_uid}", f"-{_digest(pod_uid, 8)}") if pod_uid else ("",)
    both = _digest(f"{driver}\0{pod_uid}", 16)
    return SocketPaths(
        service=_fitting("plugin directory", plugin_dir, [f"dra{s}.sock" for s in suffixes]),
        registration=_fitting(
            "registrar directory",
            registrar_dir,
            [*(f"{driver}{s}-reg.sock" for s in suffixes), f"dra-{both}-reg.sock"],
        ),
    )


def check_directory(what: str, path: Path) -> None:
    if not path.is_dir():
        raise ConfigError(
            f"{what} {path} is not a directory; mount it from the host at the same path, "
            f"and check the kubelet's --root-dir"
        )
    if not os.access(path, os.W_OK | os.X_OK, effective_ids=True):
        raise ConfigError(
            f"{what} {path} is not writable; run as root and mount it without readOnly"
        )


def make_private(what: str, path: Path) -> None:
    """For root alone: whoever may speak to the service can take devices from running pods."""
    try:
        path.chmod(0o700)
    except OSError as error:
        raise ConfigError(f"{what} {path} cannot be made private: {error}; run as root") from error


def remove_own(path: Path) -> None:
    """Make room for our socket. What lies there is of an earlier run, since the name is ours."""
    found = _inode(path)
    if found is None:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise ConfigError(f"{path} is in the way and no socket; look what it is and move it away")
    path.unlink(missing_ok=True)
    log.info("removed the stale socket", extra={"path": str(path)})


def remove_dead(*, driver: str, plugin_dir: Path, registrar_dir: Path) -> None:
    """Remove what killed plugin pods of this driver left behind: sockets that refuse a connection.

    One that accepts, or cannot be asked, is another pod's and stays.
    """
    ours = re.compile(rf"{re.escape(driver)}(?:-(?:{_UID}|{_SHORT_UID}))?-reg\.sock", re.ASCII)
    for path in (
        *(p for p in _sockets(registrar_dir) if ours.fullmatch(p.name)),
        *(p for p in _sockets(plugin_dir) if p.name.startswith("dra")),
    ):
        before = _inode(path)
        # Compared again: a pod may have put a new socket there since it was found dead.
        if before and _refuses(path) and same_file(path, before):
            path.unlink(missing_ok=True)
            log.info("removed the socket of a dead plugin pod", extra={"path": str(path)})


def bind_name(path: Path) -> Path:
    """Where a server binds before its socket gets its name. The kubelet ignores a leading dot."""
    return path.with_name(f".{_digest(path.name, 4)}")


def same_file(path: Path, known: os.stat_result) -> bool:
    found = _inode(path)
    return found is not None and os.path.samestat(found, known)


def _fitting(what: str, directory: Path, names: list[str]) -> Path:
    if not directory.is_absolute():
        raise ConfigError(f"{what} {directory} is not absolute; give the host's path")
    for name in names:
        path = directory / name
        if len(os.fsencode(path)) <= MAX_PATH:
            return path
    raise ConfigError(
        f"{what} {directory} is too long: {names[-1]} in it exceeds the {MAX_PATH} bytes that "
        f"a socket path may have; choose a shorter directory or driver name"
    )


def _digest(text: str, size: int) -> str:
    digest = hashlib.sha256(text.encode()).digest()[:size]
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _sockets(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.iterdir()):
        found = _inode(path)
        if path.suffix == ".sock" and found and stat.S_ISSOCK(found.st_mode):
            yield path


def _inode(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except FileNotFoundError:
        return None


def _refuses(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.setblocking(False)  # a full backlog is a sign of life, not a reason to wait
        return client.connect_ex(str(path)) == errno.ECONNREFUSED
