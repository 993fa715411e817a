"""Whether a fault may end pods on this cluster's server.

Why it exists: servers of 1.33 and 1.34 (until 1.34.2) also end pods that tolerate NoExecute, among
them our own (kubernetes/kubernetes#134434). Which patch a server has is not told reliably, so
before 1.35 faults keep new pods away and no more.

Must not know devices or faults, nor what a server stores of taints; `driver.core.expressible` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Protocol

from api.resource.types import Taint, TaintEffect
from driver.core.errors import KubeError
from driver.core.ids import DeviceName
from driver.observe.logs import Log
from driver.ports.kube import ServerVersion

log = Log(__name__)

_SPARES_TOLERANT: Final = (1, 35)

Taints = Mapping[DeviceName, tuple[Taint, ...]]


class Versioned(Protocol):
    def server_version(self) -> ServerVersion: ...


class ServerTaints:
    """Asks the server once, when there is a taint that ends pods."""

    def __init__(self, api: Versioned) -> None:
        self._api = api
        self._spares: bool | None = None

    def taken(self, taints: Taints) -> Taints:
        """As they may be published here."""
        ending = any(t.effect is TaintEffect.NO_EXECUTE for each in taints.values() for t in each)
        if not ending or self._spares_tolerant():
            return taints
        return {name: tuple(map(_sparing, each)) for name, each in taints.items()}

    def _spares_tolerant(self) -> bool:
        if self._spares is None:
            try:
                version = self._api.server_version()
            except KubeError as error:
                log.info("the server's version is not known yet", reason=str(error))
                return False
            self._spares = (version.major, version.minor) >= _SPARES_TOLERANT
            if not self._spares:
                log.error(
                    "no_execute_faults is not followed: this server may end pods that tolerate it"
                    " (kubernetes/kubernetes#134434); needs Kubernetes 1.35"
                )
        return self._spares


def _sparing(taint: Taint) -> Taint:
    if taint.effect is not TaintEffect.NO_EXECUTE:
        return taint
    return replace(taint, effect=TaintEffect.NO_SCHEDULE)
