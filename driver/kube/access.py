"""What a client needs to reach the API server: its address, connections that trust it, credentials.

Why it exists: `login` finds them in several ways, and only some of those need the client library.
Must not know how they were found.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import urllib3
from urllib3.connection import HTTPConnection

_KEPT: Final = 16
"""Idle connections that are kept. A burst of more calls opens more, and closes them after it."""
_TOKEN_SECONDS: Final = 60.0
"""How old a token from a file may be; the kubelet replaces it long before it expires."""


class NoCredentials(Exception):
    """They cannot be had now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """`credentials`: headers, asked for at every request. It raises NoCredentials."""

    host: str
    connections: urllib3.PoolManager
    credentials: Callable[[], Mapping[str, str]]


def trusting(authority: Path) -> urllib3.PoolManager:
    """Connections to a server whose certificate this authority signed. Requests are sent once, and
    a server that went away without a word is noticed.
    """
    options = [*HTTPConnection.default_socket_options]
    options.append((socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1))
    options.append((socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30))
    options.append((socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15))
    return urllib3.PoolManager(
        cert_reqs="CERT_REQUIRED",
        ca_certs=str(authority),
        retries=False,
        maxsize=_KEPT,
        socket_options=options,
    )


class FileToken:
    """A service account's token: short-lived, and replaced in its file by the kubelet."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """NoCredentials where there is none."""
        self._path = path
        self._clock = clock
        self._kept = self._read()
        self._until = clock() + _TOKEN_SECONDS

    def headers(self) -> Mapping[str, str]:
        """Two threads may read the file at once; both read a whole token."""
        if self._clock() >= self._until:
            self._kept = self._read()
            self._until = self._clock() + _TOKEN_SECONDS
        return self._kept

    def _read(self) -> Mapping[str, str]:
        try:
            token = self._path.read_text().strip()
        except (OSError, ValueError) as error:
            raise NoCredentials(f"{self._path}: {error}") from error
        if not token:
            raise NoCredentials(f"{self._path} is empty")
        return {"authorization": f"Bearer {token}"}
