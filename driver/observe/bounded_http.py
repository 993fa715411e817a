"""A small HTTP server on a socket that is listened on already, of any family.

Bounded on purpose: a few requests at a time, each with a time-out and a short body; what is above
that is closed or refused at once, so nobody who can connect can take the plugin's memory or
threads. Nor its places: who connects and asks for nothing makes way for the next, or a few silent
connections would keep the kubelet's probe out, and the kubelet would end the plugin.

Must not know what the answers mean, nor where the socket comes from.
"""

from __future__ import annotations

import socket
import socketserver
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import BoundedSemaphore, Lock, Thread
from typing import Final, cast
from urllib.parse import parse_qsl

from driver.observe.logs import Log

log = Log(__name__)

BACKLOG: Final = 16
TEXT: Final = "text/plain; charset=utf-8"
_REQUESTS_AT_ONCE: Final = 8
_REQUEST_SECONDS: Final = 5.0
_CUT_SECONDS: Final = 1.0
"""For the thread of a connection that was cut off to notice it."""
_LONGEST_BODY: Final = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """`query`: of each name the last value."""

    query: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: HTTPStatus = HTTPStatus.OK
    kind: str = TEXT
    body: bytes


Handler = Callable[[Request], Answer]
Routes = Mapping[str, Mapping[str, Handler]]
"""By path, then by method. HEAD is answered where GET is."""


class HttpServer:
    """Owns one thread, and those of the requests under way; `stop` ends and joins all of them.

    `poll`: seconds that `stop` may have to wait for the thread.
    """

    def __init__(
        self, listening: socket.socket, routes: Routes, *, name: str, poll: float = 0.1
    ) -> None:
        self._server = _Server(listening, routes)
        self._thread = Thread(target=self._server.serve_forever, name=name, args=(poll,))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    timeout = _REQUEST_SECONDS
    server: _Server

    def version_string(self) -> str:
        return "tessera"

    def do_GET(self) -> None:
        self._serve("GET")

    def do_HEAD(self) -> None:
        self._serve("GET", with_body=False)

    def do_POST(self) -> None:
        self._serve("POST")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def _serve(self, method: str, *, with_body: bool = True) -> None:
        self.server.heard(self.connection)
        answer = self._answer(method)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if with_body:
            self.wfile.write(answer.body)

    def _answer(self, method: str) -> Answer:
        path, _, query = self.path.partition("?")
        routes = self.server.routes
        if path not in routes:
            known = "".join(f"{path}\n" for path in routes)
            return Answer(status=HTTPStatus.NOT_FOUND, body=known.encode())
        handler = routes[path].get(method)
        if handler is None:
            allowed = "".join(f"{each}\n" for each in routes[path])
            return Answer(status=HTTPStatus.METHOD_NOT_ALLOWED, body=allowed.encode())
        body = self._body()
        if isinstance(body, Answer):
            return body
        try:
            return handler(Request(query=dict(parse_qsl(query)), body=body))
        except Exception:
            log.exception("request failed", path=self.path)
            return Answer(status=HTTPStatus.INTERNAL_SERVER_ERROR, body=b"see the log\n")

    def _body(self) -> bytes | Answer:
        if "Transfer-Encoding" in self.headers:
            return Answer(status=HTTPStatus.LENGTH_REQUIRED, body=b"send a Content-Length\n")
        given = self.headers.get("Content-Length", "0")
        if not (given.isascii() and given.isdecimal()):
            return Answer(status=HTTPStatus.BAD_REQUEST, body=b"Content-Length is no number\n")
        if int(given) > _LONGEST_BODY:
            most = f"at most {_LONGEST_BODY} bytes\n"
            return Answer(status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE, body=most.encode())
        return self.rfile.read(int(given))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        log.debug("http request", request=format % args, client=str(self.client_address))


class _Server(socketserver.ThreadingMixIn, HTTPServer):
    daemon_threads = False  # `server_close` joins them

    def __init__(self, listening: socket.socket, routes: Routes) -> None:
        self.routes = routes
        self._free = BoundedSemaphore(_REQUESTS_AT_ONCE)
        self._lock = Lock()
        self._silent: dict[socket.socket, None] = {}
        """Connections that have not asked for anything yet, the oldest first."""
        # Not HTTPServer's own, which makes a socket, and asks DNS for the host's name.
        socketserver.BaseServer.__init__(self, listening.getsockname(), _Handler)
        self.socket = listening

    def heard(self, connection: socket.socket) -> None:
        """It has asked for something, and is answered now."""
        with self._lock:
            self._silent.pop(connection, None)

    def process_request(self, request: object, client_address: object) -> None:
        connection = cast("socket.socket", request)
        if not self._place():
            log.warning("too many requests at once", limit=_REQUESTS_AT_ONCE)
            self.shutdown_request(connection)
            return
        with self._lock:
            self._silent[connection] = None
        try:
            super().process_request(connection, client_address)
        except BaseException:  # no thread could be started
            self._gone(connection)
            raise

    def process_request_thread(self, request: object, client_address: object) -> None:
        connection = cast("socket.socket", request)
        try:
            super().process_request_thread(connection, client_address)
        finally:
            self._gone(connection)

    def _place(self) -> bool:
        if self._free.acquire(blocking=False):
            return True
        with self._lock:
            oldest = next(iter(self._silent), None)
            if oldest is None:
                return False
            del self._silent[oldest]
            with suppress(OSError):  # it has just ended by itself
                oldest.shutdown(socket.SHUT_RDWR)
        return self._free.acquire(timeout=_CUT_SECONDS)

    def _gone(self, connection: socket.socket) -> None:
        self.heard(connection)
        self._free.release()

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002
        log.debug("connection broke off", client=str(client_address), error=sys.exception())
