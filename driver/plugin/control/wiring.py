"""Joins the control socket to the rest of the plugin.

Why apart: what an administrator is shown comes from every corner of the plugin.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from driver.observe.bounded_http import HttpServer, Routes
from driver.plugin.control.facts import Facts, Release
from driver.plugin.control.routes import Control
from driver.plugin.control.socket import ControlSocket
from driver.plugin.given import Node
from driver.plugin.health.whole import Health
from driver.plugin.leadership import Leadership
from driver.plugin.publishing.publisher import Publisher
from driver.state.kmsg import Counts, KernelLog

_POLL = 0.5
"""Seconds that an end may wait for it; nothing is asked here often."""


class ControlServer:
    """The socket is there while it is served."""

    def __init__(self, socket: ControlSocket, routes: Routes) -> None:
        self._socket = socket
        self._routes = routes
        self._server: HttpServer | None = None

    def start(self) -> None:
        """ConfigError where the socket cannot be made."""
        self._server = HttpServer(self._socket.listen(), self._routes, name="control", poll=_POLL)
        self._server.start()

    def stop(self) -> None:
        self._socket.remove()
        if self._server is not None:
            self._server.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class Controlled:
    node: Node
    lead: Leadership
    health: Health
    publishing: Publisher

    def serve(self) -> ControlServer:
        """Built, and not yet started."""
        control = Control(
            facts=self.facts,
            evidence=self.health.custody,
            window=self.health.window,
            tell=self.node.tell,
        )
        settings = self.node.settings
        owner = settings.pod_uid or str(os.getpid())
        return ControlServer(ControlSocket(settings.plugin_dir, owner=owner), control.routes())

    def facts(self) -> Facts:
        node, window, custody = self.node, self.health.window, self.health.custody
        left, leads = window.left, self.lead.leading
        return Facts(
            identity=node.identity,
            version=node.version,
            leads=leads,
            inventory=node.hardware.inventory,
            problem=node.hardware.problem,
            judgements=self.health.judged.judgements,
            evidence=custody.evidence,
            unsaved=custody.unsaved,
            entries=node.stores.ledger.entries(),
            release=Release(seconds_left=left, held=window.held) if left > 0 else None,
            kernel=self._kernel(),
            foreign=node.hardware.foreign,
            taints=self.publishing.taints if leads else {},
        )

    def _kernel(self) -> Counts | None:
        logs = (each for each in self.health.sources if isinstance(each, KernelLog))
        return next((each.counts for each in logs), None)
