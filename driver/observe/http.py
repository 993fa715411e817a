"""A small HTTP server for probes and scrapes: /healthz, /readyz, /metrics.

Bounded on purpose: a few requests at a time, each with a time-out; what is above that is closed at
once, so a scanner on the port cannot take the plugin's memory or threads.

Must not know what the answers mean.
"""

from __future__ import annotations

import socket
import socketserver
import sys
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import BoundedSemaphore, Thread
from typing import Final, Protocol

from driver.core.errors import ConfigError
from driver.observe.health import Check
from driver.observe.logs import Log

log = Log(__name__)

_REQUESTS_AT_ONCE: Final = 8
_REQUEST_SECONDS: Final = 5.0
_TEXT: Final = "text/plain; charset=utf-8"

_Answer = tuple[HTTPStatus, str, bytes]
_Routes = Mapping[str, Callable[[], _Answer]]


class Exposition(Protocol):
    """What /metrics answers with."""

    def render(self) -> bytes: ...


class HealthServer:
    """Owns one thread, and those of the requests under way; `stop` ends and joins all of them."""

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
        self._server = _bind(
            endpoint,
            {
                "/healthz": lambda: _checked(alive),
                "/readyz": lambda: _checked(ready),
                "/metrics": lambda: (HTTPStatus.OK, metrics_type, metrics.render()),
            },
        )
        self._thread = Thread(target=self._server.serve_forever, name="http", args=(0.1,))

    @property
    def port(self) -> int:
        """The bound one, also where 0 was asked for."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


def _checked(check: Check) -> _Answer:
    trouble = check()
    if trouble:
        return HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, f"{trouble}\n".encode()
    return HTTPStatus.OK, _TEXT, b"ok\n"


class _Handler(BaseHTTPRequestHandler):
    timeout = _REQUEST_SECONDS
    server: _Server

    def version_string(self) -> str:
        return "tessera"

    def do_GET(self) -> None:
        self._serve(with_body=True)

    def do_HEAD(self) -> None:
        self._serve(with_body=False)

    def _serve(self, *, with_body: bool) -> None:
        try:
            status, kind, body = self._answer()
        except Exception:
            log.exception("request failed", path=self.path)
            status, kind, body = HTTPStatus.INTERNAL_SERVER_ERROR, _TEXT, b"see the log\n"
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def _answer(self) -> _Answer:
        routes = self.server.routes
        route = routes.get(self.path.partition("?")[0])
        if route is None:
            return HTTPStatus.NOT_FOUND, _TEXT, "".join(f"{path}\n" for path in routes).encode()
        return route()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        log.debug("http request", request=format % args, client=self.client_address[0])


class _Server(socketserver.ThreadingMixIn, HTTPServer):
    daemon_threads = False  # `server_close` joins them
    request_queue_size = 16

    def __init__(self, address: tuple[str, int], routes: _Routes) -> None:
        self.routes = routes
        self._free = BoundedSemaphore(_REQUESTS_AT_ONCE)
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            # One socket for both families, so that a probe by IPv4 works as well.
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        socketserver.TCPServer.server_bind(self)  # HTTPServer's asks DNS for the host's name

    def process_request(self, request: object, client_address: object) -> None:
        if not self._free.acquire(blocking=False):
            log.warning("too many requests at once", limit=_REQUESTS_AT_ONCE)
            self.shutdown_request(request)  # type: ignore[arg-type]
            return
        try:
            super().process_request(request, client_address)  # type: ignore[arg-type]
        except BaseException:  # no thread could be started
            self._free.release()
            raise

    def process_request_thread(self, request: object, client_address: object) -> None:
        try:
            super().process_request_thread(request, client_address)  # type: ignore[arg-type]
        finally:
            self._free.release()

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002
        log.debug("connection broke off", client=str(client_address), error=sys.exception())


class _DualStackServer(_Server):
    address_family = socket.AF_INET6


def _bind(endpoint: tuple[str, int], routes: _Routes) -> _Server:
    host, port = endpoint
    dual = not host and socket.has_dualstack_ipv6()
    kind = _DualStackServer if dual or ":" in host else _Server
    try:
        return kind(("::" if dual else host, port), routes)
    except OSError as error:
        raise ConfigError(
            f"http_address {host}:{port} cannot be used: {error.strerror or error};"
            " set another one, or an empty value to switch it off"
        ) from error
