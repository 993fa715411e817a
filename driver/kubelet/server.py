"""One gRPC server on one socket path.

Why it exists: gRPC for Python removes the path it was bound to when it stops, also if another
process has put its own socket there by then, and creates sockets that everybody may open. So it
binds under a hidden name; the socket gets its mode and then, when it is served, its real name.
Nobody ever finds a socket that does not answer, and only the file that is ours is removed.

Must not know: which services it serves.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import grpc

from driver.core.errors import ConfigError
from driver.kubelet.methods import Service
from driver.kubelet.sockets import bind_name, remove_own, same_file

log = logging.getLogger(__name__)

_MODE: Final = 0o600
_CANCEL_MARGIN: Final = 1.0
"""Seconds that gRPC gets to end cancelled calls after the grace."""

_QUEUED_PER_WORKER: Final = 4
"""More are refused with RESOURCE_EXHAUSTED; the kubelet asks again."""


class UnixServer:
    def __init__(
        self,
        path: Path,
        services: Sequence[Service],
        *,
        workers: int,
        interceptors: Sequence[grpc.ServerInterceptor] = (),
    ) -> None:
        self._path = path
        self._workers = ThreadPoolExecutor(workers, thread_name_prefix=f"grpc-{path.name}")
        self._server = grpc.server(
            self._workers,
            handlers=[s.handler() for s in services],
            interceptors=list(interceptors),
            maximum_concurrent_rpcs=workers * _QUEUED_PER_WORKER,
        )
        self._file: os.stat_result | None = None

    def start(self) -> None:
        remove_own(self._path)
        hidden = bind_name(self._path)
        remove_own(hidden)
        try:
            self._server.add_insecure_port(f"unix:{hidden}")
        except RuntimeError as error:
            raise ConfigError(
                f"cannot listen in {self._path.parent} for {self._path.name}: {error}; "
                f"is the directory writable, and on a file system that has sockets?"
            ) from error
        hidden.chmod(_MODE)
        self._server.start()
        self._file = hidden.lstat()
        hidden.rename(self._path)

    def hide(self) -> None:
        """Remove the socket, if the one there is still ours; calls that run go on."""
        if self._file is not None and same_file(self._path, self._file):
            self._path.unlink(missing_ok=True)
        self._file = None

    def stop(self, grace: float) -> bool:
        """Take no more calls and give running ones `grace` seconds. True: none is left running.

        Callers are cut off after the grace; a handler cannot be, so it may go on behind a False.
        """
        self.hide()
        self._server.stop(grace).wait(grace + _CANCEL_MARGIN)
        # Joining the workers may take for ever; a thread of its own lets us give up on it.
        joiner = threading.Thread(target=self._workers.shutdown, daemon=True, name="grpc-join")
        joiner.start()
        joiner.join(_CANCEL_MARGIN)
        if joiner.is_alive():
            log.warning(
                "calls still run %.1f s after the stop", grace, extra={"path": str(self._path)}
            )
        return not joiner.is_alive()
