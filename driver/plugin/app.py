"""The composition root of the node plugin: joins the use cases, and starts them in order.

Why it exists: nothing else may know both a use case and an adapter. What they stand on is gathered
first (`gather.py`). Hardware and API are begun at once, then the kubelet's sockets (`life.py`).
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Final

from driver.config.settings import PluginSettings
from driver.kubelet.plugin_server import KubeletServer
from driver.observe.http import HealthServer
from driver.observe.logs import Log, setup
from driver.observe.metrics import CONTENT_TYPE
from driver.plugin.control.wiring import Controlled
from driver.plugin.gather import gather
from driver.plugin.given import Node
from driver.plugin.health.whole import Health
from driver.plugin.health.wiring import build_health
from driver.plugin.leadership import Leadership
from driver.plugin.life import live
from driver.plugin.preparing.claims import Claims
from driver.plugin.preparing.device_status import DeviceStatus
from driver.plugin.publishing.allocations import Allocations
from driver.plugin.recovering.lookup import ClaimLookup
from driver.plugin.supervise import Supervisor
from driver.plugin.wiring import KUBELET, SLICES, publisher, recovery, reporter
from driver.ports.events import Reason

log = Log(__name__)

_SWITCH: Final = 0.001
"""Seconds that a thread which computes may keep those waiting that come back from a file or the
network. Python's 5 ms are half of a preparation, which comes back some forty times.
"""


def run(settings: PluginSettings) -> int:
    """Until a signal (0) or a failure (1). ConfigError: the process could never do its work."""
    sys.setswitchinterval(_SWITCH)
    setup(level=settings.log_level, form=settings.log_format)
    supervisor = Supervisor()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: supervisor.end())
    node = gather(settings, supervisor)
    stores, hardware = node.stores, node.hardware

    health = build_health(node, damaged=lambda where, why: _evidence_damaged(node, where, why))
    allocations = Allocations()
    publishing = publisher(node, allocations, sick=health.taints)

    def prepared(claims: int) -> None:
        publishing.prepared(claims)
        health.probes.look()

    status = DeviceStatus(
        node.api, node.served, driver=settings.driver_name, wakeup=supervisor.wakeup()
    )
    claims = Claims(
        identity=node.identity,
        hardware=hardware,
        api=node.api,
        served=node.served,
        ledger=stores.ledger,
        cdi=stores.cdi,
        driver_root=stores.driver_root,
        partitions=node.partitions,
        locks=stores.locks,
        turns=stores.turns,
        on_change=prepared,
        on_prepared=status.report,
        on_lost=node.missed.tell,
        health=health,
    )
    lookup = ClaimLookup(node.api, node.served, identity=node.identity, followed=allocations.claims)
    recovering = recovery(node, lookup, on_change=prepared)
    kubelet = _kubelet(node, claims, health)
    http = _http(node, kubelet)
    turn = supervisor.wakeup()

    hardware.subscribe(turn.wake)
    hardware.subscribe(publishing.changed)
    hardware.subscribe(recovering.changed)
    health.judged.subscribe_taints(publishing.changed)
    allocations.subscribe_ends(recovering.ended)

    supervisor.start("discovery", node.discovery.run)
    supervisor.start("events", node.recorder.run)
    # Before the kubelet can ask: running pods find their files, lost entries hold their devices.
    recovering.begin()

    def leads() -> None:
        health.lead()
        turn.wake()

    lead = Leadership(
        stores.named_locks,
        follows=lambda: node.readiness.well(SLICES),
        failed=reporter(node.readiness, SLICES),
        leads=leads,
        ends=health.follow,
    )
    for name, led in (
        ("publisher", publishing.run),
        ("device status", status.run),
        ("recovery", recovering.run),
    ):
        supervisor.start(name, lead.led(led))
    health.start(supervisor, lead)
    supervisor.start("lead", lead.run)

    control = Controlled(node=node, lead=lead, health=health, publishing=publishing).serve()
    log.info("plugin started", node=node.identity.node, driver=node.identity.driver)
    return live(supervisor, kubelet, turn=turn, others=[control, *http])


def _kubelet(node: Node, claims: Claims, health: Health) -> KubeletServer:
    settings, report = node.settings, reporter(node.readiness, KUBELET)
    return KubeletServer(
        driver_name=settings.driver_name,
        plugin_dir=settings.plugin_dir,
        registrar_dir=settings.kubelet_registry_dir,
        pod_uid=settings.pod_uid,
        service=claims,
        health=health.judged,
        metrics=node.metrics,
        on_fatal=node.supervisor.fail,
        on_status=lambda heard: report(
            "" if heard.registered else heard.error or "refused without a reason"
        ),
    )


def _http(node: Node, kubelet: KubeletServer) -> list[HealthServer]:
    """Nothing where it is switched off. ConfigError where the address is not free."""
    endpoint = node.settings.http_endpoint
    if endpoint is None:
        return []
    return [
        HealthServer(
            endpoint,
            alive=lambda: kubelet.probe() or "",
            ready=node.readiness.trouble,
            metrics=node.metrics,
            metrics_type=CONTENT_TYPE,
        )
    ]


def _evidence_damaged(node: Node, where: Path, why: str) -> None:
    what = "evidence of GPU health is lost: every GPU is withheld until a probe passes on it"
    log.error(what, file=str(where), reason=why)
    node.tell(Reason.EVIDENCE_DAMAGED, f"{what}: {where}: {why}")
