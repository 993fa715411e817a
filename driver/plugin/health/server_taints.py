"""Taints as this cluster's server can be given them.

Why it exists: servers before 1.35 do not know the effect None, and refuse a whole slice for it. And
those of 1.33 and 1.34 (until 1.34.2) also end pods that tolerate NoExecute, among them our own
(kubernetes/kubernetes#134434). Which patch a server has is not told reliably, so before 1.35 faults
keep new pods away and no more, and a degraded device has no taint.

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

_KNOWS_ALL: Final = (1, 35)

Taints = Mapping[DeviceName, tuple[Taint, ...]]


class Versioned(Protocol):
    def server_version(self) -> ServerVersion: ...


class ServerTaints:
    """Asks the server once, when there is a taint that not every server takes."""

    def __init__(self, api: Versioned) -> None:
        self._api = api
        self._takes_all: bool | None = None
        self._told = False

    def taken(self, taints: Taints) -> Taints:
        """As they may be published here."""
        effects = {taint.effect for each in taints.values() for taint in each}
        if effects <= {TaintEffect.NO_SCHEDULE} or self._asked(effects):
            return taints
        plain = {name: _plain(each) for name, each in taints.items()}
        return {name: each for name, each in plain.items() if each}

    def _asked(self, effects: set[TaintEffect]) -> bool:
        if self._takes_all is None:
            try:
                version = self._api.server_version()
            except KubeError as error:
                log.info("the server's version is not known yet", reason=str(error))
                return False
            self._takes_all = (version.major, version.minor) >= _KNOWS_ALL
        if not self._takes_all and not self._told and TaintEffect.NO_EXECUTE in effects:
            self._told = True
            log.error(
                "no_execute_faults is not followed: this server may end pods that tolerate it"
                " (kubernetes/kubernetes#134434); needs Kubernetes 1.35"
            )
        return self._takes_all


def _plain(taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
    return tuple(
        replace(taint, effect=TaintEffect.NO_SCHEDULE)
        for taint in taints
        if taint.effect is not TaintEffect.NONE
    )
