"""Which version of resource.k8s.io this cluster speaks, asked until it answers.

The API server may be away when the plugin starts; whoever needs the version asks here, and gets a
KubeUnavailable until it is known.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from driver.ports.kube import Resource
from driver.ports.resources import resource_claims, resource_slices


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    version: str

    @property
    def slices(self) -> Resource:
        return resource_slices(self.version)

    @property
    def claims(self) -> Resource:
        return resource_claims(self.version)


class ServedVersion:
    """Asks until there is an answer, and remembers it. `ask` raises KubeError while there is none.

    Many callers ask at once, each with a deadline of its own: who comes while one asks takes that
    answer, or that error, so that nobody waits for more than one attempt.
    """

    def __init__(self, ask: Callable[[], str]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._known: Served | None = None
        self._asking: Future[Served] | None = None

    def get(self) -> Served:
        with self._lock:
            if self._known is not None:
                return self._known
            asking, mine = self._asking, self._asking is None
            if asking is None:
                asking = self._asking = Future()
        if mine:
            self._answer(asking)
        return asking.result()

    def _answer(self, asking: Future[Served]) -> None:
        try:
            found = Served(version=self._ask())
        except BaseException as error:  # noqa: BLE001 - whatever it is, the others wait for it
            with self._lock:
                self._asking = None
            asking.set_exception(error)
            return
        with self._lock:
            self._known, self._asking = found, None
        asking.set_result(found)
