"""One HTTP request: credentials in, JSON or a `KubeError` out. The lowest level of this package.

Why not the generated API classes: they are one per group and version, cost 5 to 30 MiB, reach only
what their generator knew, and drop fields of newer servers.

Every request has time-outs; retries are the caller's decision.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from urllib3 import Timeout
from urllib3.exceptions import HTTPError
from urllib3.response import BaseHTTPResponse

from driver.core.errors import KubeUnavailable
from driver.kube import failures
from driver.kube.access import Access, NoCredentials

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds. `read` is the longest silence while an answer is awaited or arrives."""

    connect: float = 3.0
    read: float = 10.0


class Transport:
    """Safe to use from several threads; connections are pooled."""

    def __init__(self, access: Access, *, user_agent: str) -> None:
        self._access = access
        self._user_agent = user_agent

    def close(self) -> None:
        """Drop idle connections; requests under way end by themselves."""
        self._access.connections.clear()

    def call(
        self,
        method: str,
        path: str,
        *,
        what: str,
        timeouts: Timeouts,
        body: dict[str, Any] | None = None,
        content_type: str = JSON,
    ) -> dict[str, Any]:
        """A whole answer. `what` names the request in errors."""
        with _translated(what):
            response = self._send(method, path, what, timeouts, body, content_type)
            return _decoded(what, response.data)

    def open(self, path: str, *, what: str, timeouts: Timeouts, silence: float) -> BaseHTTPResponse:
        """An answer to be read in pieces; the caller closes it.

        `timeouts` hold until it begins: a server that does not even begin is noticed early.
        From then on the longest silence is `silence`.
        """
        with _translated(what):
            response = self._send("GET", path, what, timeouts, None, JSON)
            socket = getattr(response.connection, "sock", None)
            if socket is not None:  # None: the whole answer has arrived already
                socket.settimeout(silence)
            return response

    def _send(
        self,
        method: str,
        path: str,
        what: str,
        timeouts: Timeouts,
        body: dict[str, Any] | None,
        content_type: str,
    ) -> BaseHTTPResponse:
        headers = {"Accept": JSON, "User-Agent": self._user_agent, **self._credentials(what)}
        if body is not None:
            headers["Content-Type"] = content_type
        response = self._access.connections.request(
            method,
            self._access.host + path,
            headers=headers,
            body=None if body is None else json.dumps(body).encode(),
            timeout=Timeout(connect=timeouts.connect, read=timeouts.read),
            preload_content=False,
        )
        if not 200 <= response.status <= 299:  # noqa: PLR2004 - HTTP
            raise failures.answered(what, response.status, response.headers, response.data)
        return response

    def _credentials(self, what: str) -> Mapping[str, str]:
        """Asked for at every request: projected tokens expire within the hour."""
        try:
            return self._access.credentials()
        except NoCredentials as error:
            raise KubeUnavailable(f"the credentials cannot be read: {error}", what=what) from error


@contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except (HTTPError, OSError) as error:
        raise failures.unreachable(what, error) from error


def _decoded(what: str, data: bytes) -> dict[str, Any]:
    try:
        decoded = json.loads(data)
    except ValueError as error:
        raise failures.unreadable(what, error) from error
    if not isinstance(decoded, dict):
        raise failures.unreadable(what, TypeError(f"an object is needed, got {data[:40]!r}"))
    return decoded
