"""One HTTP request: credentials in, JSON or a `KubeError` out. The lowest level of this package.

Why not the generated API classes: they are one per group and version, cost 5 to 30 MiB, reach only
what their generator knew, and drop fields of newer servers. The library still gives what is hard:
kubeconfig, in-cluster login, token refresh, TLS and proxies.

Every request has time-outs, as the library has none of its own; retries are the caller's decision,
so the library's are off.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from kubernetes.client.configuration import Configuration
from kubernetes.client.exceptions import ApiException
from kubernetes.client.rest import RESTClientObject
from kubernetes.config import ConfigException
from urllib3.exceptions import HTTPError
from urllib3.response import BaseHTTPResponse

from driver.core.errors import KubeUnavailable
from driver.kube import failures

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

    def __init__(self, configuration: Configuration, *, user_agent: str) -> None:
        configuration.retries = False
        configuration.keep_alive = True
        self._configuration = configuration
        self._rest = RESTClientObject(configuration)
        self._user_agent = user_agent

    def close(self) -> None:
        """Drop idle connections; requests under way end by themselves."""
        self._rest.close()

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
        answer = self._rest.request(
            method,
            self._configuration.host + path,
            headers=headers,
            body=body,
            _request_timeout=(timeouts.connect, timeouts.read),
        )
        response: BaseHTTPResponse = answer.response
        if not 200 <= response.status <= 299:  # noqa: PLR2004 - HTTP
            raise failures.answered(what, response.status, response.headers, response.data)
        return response

    def _credentials(self, what: str) -> dict[str, str]:
        """Asked for at every request: projected tokens expire within the hour."""
        try:
            settings = self._configuration.auth_settings()
        except (ConfigException, OSError) as error:
            raise KubeUnavailable(f"the credentials cannot be read: {error}", what=what) from error
        return {entry["key"]: entry["value"] for entry in settings.values() if entry["value"]}


@contextmanager
def _translated(what: str) -> Iterator[None]:
    """The library raises urllib3's errors, and wraps the TLS ones."""
    try:
        yield
    except (HTTPError, ApiException, OSError) as error:
        raise failures.unreachable(what, error) from error


def _decoded(what: str, data: bytes) -> dict[str, Any]:
    try:
        decoded = json.loads(data)
    except ValueError as error:
        raise failures.unreadable(what, error) from error
    if not isinstance(decoded, dict):
        raise failures.unreadable(what, TypeError(f"an object is needed, got {data[:40]!r}"))
    return decoded
