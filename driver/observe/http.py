"""Probes and scrapes over TCP: /healthz, /readyz, /metrics.

Must not know what the answers mean.
"""

from __future__ import annotations

import socket
from http import HTTPStatus
from typing import Protocol

from driver.core.errors import ConfigError
from driver.observe.bounded_http import BACKLOG, Answer, HttpServer
from driver.observe.health import Check


class Exposition(Protocol):
    """What /metrics answers with."""

    def render(self) -> bytes: ...


class HealthServer:
    """See `HttpServer`."""

    def __init__(
        self,
        endpoint: tuple[str, int],
        *,
        alive: Check,
        ready: Check,
        metrics: Exposition,
        metrics_type: str,
    ) -> None:
        """Binds at once: ConfigError where the address is not free."""
        listening = _listen(endpoint)
        self._port = int(listening.getsockname()[1])
        self._server = HttpServer(
            listening,
            {
                "/healthz": {"GET": lambda _: _checked(alive)},
                "/readyz": {"GET": lambda _: _checked(ready)},
                "/metrics": {"GET": lambda _: Answer(kind=metrics_type, body=metrics.render())},
            },
            name="http",
        )

    @property
    def port(self) -> int:
        """The bound one, also where 0 was asked for."""
        return self._port

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        self._server.stop()


def _checked(check: Check) -> Answer:
    trouble = check()
    if trouble:
        return Answer(status=HTTPStatus.SERVICE_UNAVAILABLE, body=f"{trouble}\n".encode())
    return Answer(body=b"ok\n")


def _listen(endpoint: tuple[str, int]) -> socket.socket:
    host, port = endpoint
    dual = socket.has_dualstack_ipv6()
    six = ":" in host or (not host and dual)
    try:
        return socket.create_server(
            (host, port),
            family=socket.AF_INET6 if six else socket.AF_INET,
            backlog=BACKLOG,
            # One socket for both families, so that a probe by IPv4 works as well.
            dualstack_ipv6=six and dual,
        )
    except OSError as error:
        raise ConfigError(
            f"http_address {host}:{port} cannot be used: {error.strerror or error};"
            " set another one, or an empty value to switch it off"
        ) from error
