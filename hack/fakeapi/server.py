"""HTTP around a cluster; start it, point a kubeconfig at it, stop it."""

from __future__ import annotations

import json
import ssl
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from hack.fakeapi.cluster import Cluster
from hack.fakeapi.faults import Fault, Faults, Rule
from hack.fakeapi.handler import Handler
from hack.fakeapi.requests import Request, RequestLog
from hack.fakeapi.strategy import Settings

__all__ = ["ApiServer", "Request"]


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in the middle of a watch is no error."""


class ApiServer:
    """A context manager. `tokens`: those that are let in; None lets everybody in.

    `bookmark_every`: seconds. The real server's minute is too long for most tests.
    """

    def __init__(
        self,
        cluster: Cluster | None = None,
        *,
        settings: Settings | None = None,
        tokens: frozenset[str] | None = None,
        bookmark_every: float = 60.0,
        tls: ssl.SSLContext | None = None,
        address: tuple[str, int] = ("127.0.0.1", 0),
    ) -> None:
        self.cluster = cluster or Cluster(settings)
        self.faults = Faults()
        self.requests = RequestLog()
        self.tokens = tokens
        self.bookmark_every = bookmark_every
        self.stopping = threading.Event()
        self._listener = _Listener(address, lambda *args: Handler(*args, api=self))
        if tls is not None:
            self._listener.socket = tls.wrap_socket(
                self._listener.socket, server_side=True, do_handshake_on_connect=False
            )
        self._scheme = "https" if tls else "http"
        self._thread = threading.Thread(
            target=self._listener.serve_forever,
            kwargs={"poll_interval": 0.05},
            name="fake API server",
            daemon=True,
        )

    @property
    def url(self) -> str:
        host, port = self._listener.server_address[:2]
        return f"{self._scheme}://{host!s}:{port}"

    def fail(
        self, fault: Fault, *, verb: str = "", resource: str = "", times: int | None = None
    ) -> Rule:
        return self.faults.add(fault, verb=verb, resource=resource, times=times)

    def end_watches(self) -> None:
        """Every open watch ends as if its time was up; new ones are welcome."""
        with self.cluster.history.changed:
            for watcher in list(self.cluster.history.watchers):
                watcher.close()

    def kubeconfig(self, *, token: str = "", ca: str = "") -> dict[str, Any]:
        cluster = {"server": self.url, **({"certificate-authority": ca} if ca else {})}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "fake",
            "clusters": [{"name": "fake", "cluster": cluster}],
            "users": [{"name": "fake", "user": {"token": token} if token else {}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
        }

    def write_kubeconfig(self, path: Path, *, token: str = "", ca: str = "") -> Path:
        """JSON, which is YAML."""
        path.write_text(json.dumps(self.kubeconfig(token=token, ca=ca), indent=2))
        return path

    def start(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Open watches end, hanging requests are let go."""
        self.stopping.set()
        self.end_watches()
        self._listener.shutdown()
        self._listener.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()
