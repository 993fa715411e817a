"""The kubelet's calls that run now, so that the end can wait for them before we leave the kubelet.

Why before: when the registration goes, the kubelet closes its connection, and every call on it
fails for its pod although the work is done. Calls that come meanwhile are served as well, and not
waited for: where another plugin runs on the node they go there.

Must not know what a call does.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from driver.core.ids import ClaimUID
from driver.ports.kubelet import ClaimRef, ClaimService, PrepareAnswer, UnprepareAnswer


class RunningCalls:
    """Implements `driver.ports.kubelet.ClaimService`, by another one."""

    def __init__(self, service: ClaimService) -> None:
        self._service = service
        self._changed = threading.Condition()
        self._running: set[int] = set()
        self._count = 0

    def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[ClaimUID, PrepareAnswer]:
        with self._call():
            return self._service.prepare(claims)

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[ClaimUID, UnprepareAnswer]:
        with self._call():
            return self._service.unprepare(claims)

    def wait(self, timeout: float) -> bool:
        """Until the calls that run now have ended; whether they have, in `timeout` seconds."""
        with self._changed:
            now = set(self._running)
            return self._changed.wait_for(lambda: not now & self._running, timeout)

    @contextmanager
    def _call(self) -> Iterator[None]:
        with self._changed:
            self._count += 1
            number = self._count
            self._running.add(number)
        try:
            yield
        finally:
            with self._changed:
                self._running.remove(number)
                self._changed.notify_all()
