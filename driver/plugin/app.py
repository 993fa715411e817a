"""The composition root of the node plugin: builds the adapters, joins them, runs, takes them down.

Why it exists: nothing else may know both a use case and an adapter. Hardware and API are begun at
once, then the kubelet's sockets; the end is in reverse, so that the kubelet asks nothing of a
plugin that is half gone.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, Protocol

from driver.config.settings import PluginSettings
from driver.core.errors import ConfigError, StateError
from driver.kube.client import Client
from driver.kube.events import Recorder
from driver.kube.login import login
from driver.kube.versions import discover
from driver.kubelet.plugin_server import KubeletServer
from driver.nvml import NvmlLibrary, NvmlPartitions
from driver.observe.health import Readiness
from driver.observe.http import HealthServer
from driver.observe.logs import Log, setup
from driver.observe.metrics import CONTENT_TYPE, Metrics
from driver.plugin.control.wiring import Controlled
from driver.plugin.health.given import Node
from driver.plugin.health.wiring import build_health
from driver.plugin.leadership import Leadership
from driver.plugin.node import Hardware, Identity
from driver.plugin.preparing.claims import Claims
from driver.plugin.preparing.device_status import DeviceStatus
from driver.plugin.preparing.partitions import Partitions
from driver.plugin.preparing.running_calls import RunningCalls
from driver.plugin.publishing.allocations import Allocations
from driver.plugin.recovering.lookup import ClaimLookup
from driver.plugin.recovering.missed import Missed
from driver.plugin.recovering.recovery import Tell
from driver.plugin.served import ServedVersion
from driver.plugin.stores import open_stores
from driver.plugin.supervise import Supervisor, Wakeup
from driver.plugin.wiring import (
    GPUS,
    KUBELET,
    SLICES,
    Topology,
    discovery,
    publisher,
    recovery,
    reporter,
    teller,
)
from driver.ports.events import Reason
from driver.state.sysfs import boot_id

log = Log(__name__)

_DRAIN: Final = 40.0
"""Seconds for running calls at the end; the kubelet gives up on a call after 45."""
_JOIN: Final = 5.0
_SWITCH: Final = 0.001
"""Seconds that a thread which computes may keep those waiting that come back from a file or the
network. Python's 5 ms are half of a preparation, which comes back some forty times.
"""


class Serves(Protocol):
    def start(self) -> None: ...

    def stop(self) -> None: ...


def run(settings: PluginSettings) -> int:
    """Until a signal (0) or a failure (1). ConfigError: the process could never do its work."""
    sys.setswitchinterval(_SWITCH)
    setup(level=settings.log_level, form=settings.log_format)
    supervisor = Supervisor()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: supervisor.end())
    release = _own_version()
    metrics = Metrics(version=release)
    readiness = Readiness(GPUS, SLICES, KUBELET, on_change=metrics.set_ready)

    identity = Identity(
        driver=settings.driver_name, node=settings.node_name, boot_id=_boot_id(settings.proc_root)
    )
    api = Client(
        login(kubeconfig=str(settings.kubeconfig or "")), user_agent=f"tessera-plugin/{release}"
    )
    recorder = Recorder(api, controller=identity.driver, instance=identity.node)
    tell = teller(recorder, identity.node)
    missed = Missed()
    stores = open_stores(
        settings, on_damage=lambda where, why: _damaged(metrics, tell, missed, where, why)
    )
    metrics.show_prepared_claims(lambda: len(stores.ledger.known()))
    served = ServedVersion(lambda: discover(api).resource_version)
    hardware = Hardware()
    library = NvmlLibrary(
        driver_root=settings.driver_root,
        topology=Topology(settings),
        library=settings.nvml_library,
    )
    partitions = NvmlPartitions(library)
    looking = discovery(
        settings,
        supervisor,
        library=library,
        hardware=hardware,
        entries=stores.ledger.known,
        boot_id=identity.boot_id,
        readiness=readiness,
        metrics=metrics,
    )
    working = Partitions(partitions, wait=supervisor.stop.wait)
    health = build_health(
        Node(
            settings=settings,
            supervisor=supervisor,
            identity=identity,
            hardware=hardware,
            api=api,
            library=library,
            partitions=working,
            stores=stores,
            discovery=looking,
            metrics=metrics,
            tell=tell,
        ),
        damaged=lambda where, why: _evidence_damaged(tell, where, why),
    )
    allocations = Allocations()
    publishing = publisher(
        settings,
        supervisor,
        identity=identity,
        hardware=hardware,
        api=api,
        served=served,
        allocations=allocations,
        entries=stores.ledger.known,
        readiness=readiness,
        metrics=metrics,
        sick=health.taints,
    )
    turn = supervisor.wakeup()
    hardware.subscribe(turn.wake)
    hardware.subscribe(publishing.changed)
    health.judged.subscribe_taints(publishing.changed)

    def prepared(claims: int) -> None:
        publishing.prepared(claims)
        health.probes.look()

    status = DeviceStatus(api, served, driver=settings.driver_name, wakeup=supervisor.wakeup())
    claims = Claims(
        identity=identity,
        hardware=hardware,
        api=api,
        served=served,
        ledger=stores.ledger,
        cdi=stores.cdi,
        driver_root=stores.driver_root,
        partitions=working,
        locks=stores.locks,
        turns=stores.turns,
        on_change=prepared,
        on_prepared=status.report,
        on_lost=missed.tell,
        health=health,
    )
    calls = RunningCalls(claims)
    kubelet = KubeletServer(
        driver_name=settings.driver_name,
        plugin_dir=settings.plugin_dir,
        registrar_dir=settings.kubelet_registry_dir,
        pod_uid=settings.pod_uid,
        service=calls,
        health=health.judged,
        metrics=metrics,
        on_fatal=supervisor.fail,
        on_status=lambda heard: reporter(readiness, KUBELET)(
            "" if heard.registered else heard.error or "refused without a reason"
        ),
    )
    http = _http(settings, readiness=readiness, metrics=metrics, kubelet=kubelet)

    recovering = recovery(
        settings,
        supervisor,
        identity=identity,
        hardware=hardware,
        lookup=ClaimLookup(api, served, identity=identity, followed=allocations.claims),
        stores=stores,
        library=partitions,
        discovery=looking,
        metrics=metrics,
        tell=tell,
        missed=missed,
        on_change=prepared,
    )
    hardware.subscribe(recovering.changed)
    allocations.subscribe_ends(recovering.ended)
    supervisor.start("discovery", looking.run)
    supervisor.start("events", recorder.run)
    # Before the kubelet can ask: running pods find their files, lost entries hold their devices.
    recovering.begin()

    def leads() -> None:
        health.lead()
        turn.wake()

    lead = Leadership(
        stores.named_locks,
        follows=lambda: readiness.well(SLICES),
        failed=reporter(readiness, SLICES),
        leads=leads,
    )
    for name, led in (
        ("publisher", publishing.run),
        ("device status", status.run),
        ("recovery", recovering.run),
    ):
        supervisor.start(name, lead.led(led))
    health.start(supervisor, lead)
    supervisor.start("lead", lead.run)
    control = Controlled(
        identity=identity,
        version=release,
        lead=lead,
        hardware=hardware,
        health=health,
        entries=stores.ledger.entries,
        tell=tell,
    ).serve(settings)
    log.info("plugin started", node=identity.node, driver=identity.driver)
    return _live(supervisor, kubelet, turn, calls, [control, *([http] if http else [])])


def _live(
    supervisor: Supervisor,
    kubelet: KubeletServer,
    turn: Wakeup,
    calls: RunningCalls,
    others: Sequence[Serves],
) -> int:
    """Serves until it is told to end, then lets running calls end: first those that were there, so
    that the kubelet hears their answer, then it leaves the kubelet. The exit code.

    The kubelet asks the plugin that registered last, not the one that can answer. So we register
    when it is our `turn`: the GPUs have been read, or we lead, which one that is alone does at
    once. A successor that never can serve takes nothing away from the one that does.
    """
    try:
        for each in others:
            each.start()
        turn.wait(None)
        if not supervisor.stop.is_set():
            kubelet.start()
        supervisor.stop.wait()
    finally:
        supervisor.end()
        deadline = time.monotonic() + _DRAIN
        calls.wait(_DRAIN)
        drained = kubelet.stop(max(0.0, deadline - time.monotonic()))
        for each in others:
            each.stop()
        running = supervisor.join(_JOIN)
    return _end(supervisor, drained=drained, running=running)


def _end(supervisor: Supervisor, *, drained: bool, running: list[str]) -> int:
    """The exit code. A thread that hangs in a call must not keep the process from ending."""
    failure = supervisor.failure
    if failure is None:
        log.info("plugin ended")
    else:
        log.error("plugin ends", reason=f"{type(failure).__name__}: {failure}")
    code = 0 if failure is None else 2 if isinstance(failure, ConfigError) else 1
    if running or not drained:
        log.warning("ended without waiting", threads=running, calls_drained=drained)
        os._exit(code)
    return code


def _damaged(metrics: Metrics, tell: Tell, missed: Missed, where: Path, why: str) -> None:
    metrics.ledger_damaged()
    missed.tell()
    what = "the ledger was damaged; what is lost is made again from CDI files and the hardware"
    log.error(what, file=str(where), reason=why)
    tell(Reason.LEDGER_DAMAGED, f"{what}: {where}: {why}")


def _evidence_damaged(tell: Tell, where: Path, why: str) -> None:
    what = "evidence of GPU health is lost: every GPU is withheld until a probe passes on it"
    log.error(what, file=str(where), reason=why)
    tell(Reason.EVIDENCE_DAMAGED, f"{what}: {where}: {why}")


def _http(
    settings: PluginSettings, *, readiness: Readiness, metrics: Metrics, kubelet: KubeletServer
) -> HealthServer | None:
    endpoint = settings.http_endpoint
    if endpoint is None:
        return None
    return HealthServer(
        endpoint,
        alive=lambda: kubelet.probe() or "",
        ready=readiness.trouble,
        metrics=metrics,
        metrics_type=CONTENT_TYPE,
    )


def _boot_id(proc_root: Path) -> str:
    try:
        return boot_id(proc_root)
    except StateError as error:
        raise ConfigError(f"proc_root: {error}") from error


def _own_version() -> str:
    try:
        return version("tessera")
    except PackageNotFoundError:  # run from a checkout
        return "0+checkout"
