"""Which version of resource.k8s.io this cluster speaks, asked until it answers.

The API server may be away when the plugin starts; whoever needs the version asks here, and gets a
KubeUnavailable until it is known.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
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
    """Asks once and remembers. `ask` raises KubeError while there is no answer."""

    def __init__(self, ask: Callable[[], str]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._known: Served | None = None

    def get(self) -> Served:
        with self._lock:
            if self._known is None:
                self._known = Served(version=self._ask())
            return self._known
