"""Whether this cluster may be told to end the pods of a sick device.

Why it exists: servers of 1.33 and 1.34 (until 1.34.2) also end pods that tolerate the taint, among
them our own (kubernetes/kubernetes#134434). Which patch a server has is not told reliably, so on
these versions such a fault keeps new pods away and no more.

Must not know devices or faults.
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

_SOUND: Final = (1, 35)

Taints = Mapping[DeviceName, tuple[Taint, ...]]


class Versioned(Protocol):
    def server_version(self) -> ServerVersion: ...


class Ending:
    """Asks the server once, when there is a taint that asks for it."""

    def __init__(self, api: Versioned) -> None:
        self._api = api
        self._may: bool | None = None

    def softened(self, taints: Taints) -> Taints:
        """As they may be published here."""
        if not any(t.effect is TaintEffect.NO_EXECUTE for each in taints.values() for t in each):
            return taints
        if self._asked():
            return taints
        return {name: tuple(map(_soft, each)) for name, each in taints.items()}

    def _asked(self) -> bool:
        if self._may is None:
            try:
                version = self._api.server_version()
            except KubeError as error:
                log.info("a fault does not end pods yet", reason=str(error))
                return False
            self._may = (version.major, version.minor) >= _SOUND
            if not self._may:
                log.error(
                    "no_execute_faults is not followed: this server may end pods that tolerate it"
                    " (kubernetes/kubernetes#134434); needs Kubernetes 1.35",
                    server=str(version),
                )
        return self._may


def _soft(taint: Taint) -> Taint:
    if taint.effect is TaintEffect.NO_EXECUTE:
        return replace(taint, effect=TaintEffect.NO_SCHEDULE)
    return taint
