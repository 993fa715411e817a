"""Serves the kubelet until the end, and then ends in order.

Why it exists: at both ends the order is what matters. The kubelet asks the plugin that registered
last, not the one that can answer; and at the end it must hear the answers of calls that run, and
ask nothing of a plugin that is half gone.

Must not know what is served.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Final, Protocol

from driver.core.errors import ConfigError
from driver.observe.logs import Log
from driver.plugin.supervise import Supervisor, Wakeup

log = Log(__name__)

_DRAIN: Final = 40.0
"""Seconds for running calls at the end; the kubelet gives up on a call after 45."""
_JOIN: Final = 5.0


class Serves(Protocol):
    def start(self) -> None: ...

    def stop(self) -> None: ...


class ServesKubelet(Protocol):
    """See `driver.kubelet.plugin_server.KubeletServer`."""

    def start(self) -> None: ...

    def drain(self, seconds: float) -> bool: ...

    def stop(self, grace: float) -> bool: ...


def live(
    supervisor: Supervisor,
    kubelet: ServesKubelet,
    *,
    turn: Wakeup,
    others: Sequence[Serves],
) -> int:
    """Until it is told to end; the exit code.

    We register when it is our `turn`: the GPUs have been read, or we lead, which one that is alone
    does at once. A successor that never can serve takes nothing away from the one that does.
    """
    try:
        for each in others:
            each.start()
        turn.wait(None)
        if not supervisor.stop.is_set():
            kubelet.start()
        supervisor.stop.wait()
    finally:
        supervisor.end()
        deadline = time.monotonic() + _DRAIN
        # First those that were there, so that the kubelet hears their answer; then we leave it.
        kubelet.drain(_DRAIN)
        drained = kubelet.stop(max(0.0, deadline - time.monotonic()))
        for each in others:
            each.stop()
        running = supervisor.join(_JOIN)
    return _end(supervisor, drained=drained, running=running)


def _end(supervisor: Supervisor, *, drained: bool, running: list[str]) -> int:
    """The exit code. A thread that hangs in a call must not keep the process from ending."""
    failure = supervisor.failure
    if failure is None:
        log.info("plugin ended")
    else:
        log.error("plugin ends", reason=f"{type(failure).__name__}: {failure}")
    code = 0 if failure is None else 2 if isinstance(failure, ConfigError) else 1
    if running or not drained:
        log.warning("ended without waiting", threads=running, calls_drained=drained)
        os._exit(code)
    return code
