"""Sends Events from a thread of its own, few at a time; what does not fit is dropped and counted.

Why its own thread: health judgement must not wait for the API server, least of all when that is
what is sick. Why a limit: a flapping device must not fill etcd.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from queue import Full, Queue
from typing import Final

from driver.core.errors import KubeError
from driver.kube.throttle import TokenBucket
from driver.ports.events import Reason, Regarding
from driver.ports.kube import JsonObject, KubeApi
from driver.ports.resources import EVENTS

log = logging.getLogger(__name__)

MAX_NOTE: Final = 1024
WAITING: Final = 100
_LINGER: Final = 0.25
"""Seconds that an event waits after a pause: what it tells of is being written to the same server,
which then has nothing else to do for us.
"""
_CLUSTER_SCOPED: Final = "default"
"""The namespace of events about objects that have none."""


def _now() -> datetime:
    return datetime.now(UTC)


class Recorder:
    """Implements `driver.ports.events.EventSink`. `dropped` hears of each that is never stored, in
    any thread.
    """

    def __init__(
        self,
        api: KubeApi,
        *,
        controller: str,
        instance: str,
        dropped: Callable[[], None],
        limit: TokenBucket | None = None,
        now: Callable[[], datetime] = _now,
    ) -> None:
        self._api = api
        self._controller = controller
        self._instance = instance
        self._limit = limit or TokenBucket(rate=0.2, burst=25)
        self._now = now
        self._queue: Queue[JsonObject | None] = Queue(WAITING)
        self._dropped = dropped

    def event(self, about: Regarding, reason: Reason, note: str, *, warning: bool = False) -> None:
        if not self._limit.try_take():
            self._dropped()
            return
        try:
            self._queue.put_nowait(self._event(about, reason, note, warning=warning))
        except Full:
            self._dropped()

    def run(self, stop: threading.Event) -> None:
        """Until `stop`; what is queued by then is still sent."""
        closer = threading.Thread(
            target=self._end_when, args=(stop,), name="end events", daemon=True
        )
        closer.start()
        while (event := self._next(stop)) is not None:
            try:
                self._api.create(EVENTS, event)
            except KubeError as error:
                self._dropped()
                log.warning(
                    "event not stored", extra={"reason": event["reason"], "error": str(error)}
                )
        closer.join()

    def _next(self, stop: threading.Event) -> JsonObject | None:
        idle = self._queue.empty()
        event = self._queue.get()
        if idle and event is not None:
            stop.wait(_LINGER)
        return event

    def _end_when(self, stop: threading.Event) -> None:
        stop.wait()
        self._queue.put(None)

    def _event(self, about: Regarding, reason: Reason, note: str, *, warning: bool) -> JsonObject:
        regarding = {
            "apiVersion": about.api_version,
            "kind": about.kind,
            "name": about.name,
            "namespace": about.namespace,
            "uid": about.uid,
        }
        return {
            "metadata": {
                "name": f"{about.name}.{secrets.token_hex(8)}",
                "namespace": about.namespace or _CLUSTER_SCOPED,
            },
            "eventTime": self._now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "action": reason.value,
            "reason": reason.value,
            "type": "Warning" if warning else "Normal",
            "regarding": {key: value for key, value in regarding.items() if value},
            "note": note if len(note) <= MAX_NOTE else note[: MAX_NOTE - 3] + "...",
        }
