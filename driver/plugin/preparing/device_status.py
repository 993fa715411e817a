"""Writes what a claim really got into its status: UUIDs and instance ids, for people and tools.

Why apart: it is a courtesy. It costs a request to the API, and must neither slow a preparation
down nor make it fail; so it has a thread of its own and a bounded queue, and what cannot be written
after a few attempts is left out with a line in the log.
"""

from __future__ import annotations

import threading
from collections import deque
from datetime import UTC, datetime
from typing import Final

from driver.core.errors import (
    KubeConflict,
    KubeError,
    KubeForbidden,
    KubeInvalid,
    KubeNotFound,
)
from driver.core.ledger import Entry
from driver.observe.logs import Log
from driver.plugin.served import ServedVersion
from driver.plugin.supervise import Wakeup
from driver.ports.kube import JsonObject, KubeApi

log = Log(__name__)

_MANAGER: Final = "tessera-plugin"
_LONGEST_QUEUE: Final = 256
_ATTEMPTS: Final = 3


class DeviceStatus:
    """`report` from any thread; `run` in its own."""

    def __init__(self, api: KubeApi, served: ServedVersion, *, driver: str, wakeup: Wakeup) -> None:
        self._api = api
        self._served = served
        self._driver = driver
        self._wakeup = wakeup
        self._waiting: deque[Entry] = deque()

    def report(self, entry: Entry) -> None:
        if len(self._waiting) >= _LONGEST_QUEUE:
            log.warning("device status left out, too many at once", claim=entry.uid)
            return
        self._waiting.append(entry)
        self._wakeup.wake()

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self._wakeup.wait(None)
            while self._waiting and not stop.is_set():
                self._write(self._waiting.popleft(), stop)

    def _write(self, entry: Entry, stop: threading.Event) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                served = self._served.get()
                body = status_of(entry, self._driver, served.claims.api_version, now=_now())
                self._api.apply_status(served.claims, body, manager=_MANAGER)
            except (KubeNotFound, KubeConflict):
                return  # the claim is gone, or another one has its name
            except (KubeForbidden, KubeInvalid) as error:
                log.warning("device status is refused", claim=entry.uid, reason=str(error))
                return
            except KubeError as error:
                log.info("device status not written", claim=entry.uid, reason=str(error))
                if stop.wait(2**attempt):
                    return
            else:
                return


def status_of(entry: Entry, driver: str, api_version: str, *, now: str) -> JsonObject:
    """Server-side apply: only our entries, guarded by the claim's UID."""
    devices = []
    for holding in entry.holdings:
        made = holding.slot.made if holding.slot else None
        data: JsonObject = {"uuid": holding.uuid, "parentUUID": holding.gpu}
        if made is not None:
            data |= {"gpuInstance": made.instance, "computeInstance": made.compute}
        devices.append(
            {
                "driver": driver,
                "pool": holding.pool,
                "device": holding.device,
                **({"shareID": holding.share_id} if holding.share_id else {}),
                "data": data,
                "conditions": [
                    {
                        "type": "Ready",
                        "status": "True",
                        "reason": "Prepared",
                        "message": f"{holding.uuid} is prepared",
                        "lastTransitionTime": now,
                    }
                ],
            }
        )
    return {
        "apiVersion": api_version,
        "kind": "ResourceClaim",
        "metadata": {"name": entry.name, "namespace": entry.namespace, "uid": entry.uid},
        "status": {"devices": devices},
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
