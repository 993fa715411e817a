"""The composition root of the node plugin: builds the adapters, joins them, runs, takes them down.

Why it exists: nothing else may know both a use case and an adapter. Hardware and API are begun at
once, then the kubelet's sockets; the end is in reverse, so that the kubelet asks nothing of a
plugin that is half gone.
"""

from __future__ import annotations

import os
import signal
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from driver.config.settings import PluginSettings
from driver.core.errors import ConfigError, StateError
from driver.kube.client import Client
from driver.kube.login import login
from driver.kube.versions import discover
from driver.kubelet.plugin_server import KubeletServer
from driver.nvml import NvmlLibrary, NvmlPartitions
from driver.observe.health import Readiness
from driver.observe.http import HealthServer
from driver.observe.logs import Log, setup
from driver.observe.metrics import CONTENT_TYPE, Metrics
from driver.plugin.claims import Claims
from driver.plugin.device_status import DeviceStatus
from driver.plugin.gpu_locks import GpuLocks
from driver.plugin.leadership import Leadership
from driver.plugin.node import Hardware, Identity
from driver.plugin.partitions import Partitions
from driver.plugin.served import ServedVersion
from driver.plugin.supervise import Supervisor
from driver.plugin.turns import Turns
from driver.plugin.wiring import (
    GPUS,
    KUBELET,
    SLICES,
    Topology,
    discovery,
    publisher,
    reporter,
)
from driver.state.cdi_store import CdiDir
from driver.state.driver_root import DriverTree, Roots
from driver.state.ledger import LedgerDir
from driver.state.named_locks import NamedLocks
from driver.state.sysfs import boot_id

log = Log(__name__)

_DRAIN: Final = 40.0
"""Seconds for running calls at the end; the kubelet gives up on a call after 45."""
_JOIN: Final = 5.0


def run(settings: PluginSettings) -> int:
    """Until a signal (0) or a failure (1). ConfigError: the process could never do its work."""
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
    _own_folder(settings.kubelet_plugins_dir, settings.plugin_dir)
    ledger = LedgerDir(
        settings.plugin_dir / "ledger",
        settings.node_name,
        on_damage=lambda where, why: _damaged(metrics, where, why),
    )
    locks = NamedLocks(settings.plugin_dir / "locks")
    cdi = CdiDir(settings.cdi_dir)
    api = Client(
        login(kubeconfig=str(settings.kubeconfig or "")), user_agent=f"tessera-plugin/{release}"
    )
    served = ServedVersion(lambda: discover(api).resource_version)
    hardware = Hardware()
    library = NvmlLibrary(
        driver_root=settings.driver_root,
        topology=Topology(settings),
        library=settings.nvml_library,
    )
    publishing = publisher(
        settings,
        supervisor,
        identity=identity,
        hardware=hardware,
        api=api,
        served=served,
        entries=ledger.known,
        readiness=readiness,
        metrics=metrics,
    )
    hardware.subscribe(publishing.changed)
    status = DeviceStatus(api, served, driver=settings.driver_name, wakeup=supervisor.wakeup())
    claims = Claims(
        identity=identity,
        hardware=hardware,
        api=api,
        served=served,
        ledger=ledger,
        cdi=cdi,
        driver_root=DriverTree(
            Roots(
                root=settings.driver_root,
                host_root=settings.host_driver_root,
                proc=settings.proc_root,
            ),
            container_folders=settings.container_library_dirs,
            required=settings.required_libraries,
        ),
        partitions=Partitions(NvmlPartitions(library), wait=supervisor.stop.wait),
        locks=GpuLocks(locks),
        turns=Turns(locks),
        on_change=metrics.set_prepared_claims,
        on_prepared=status.report,
    )
    kubelet = KubeletServer(
        driver_name=settings.driver_name,
        plugin_dir=settings.plugin_dir,
        registrar_dir=settings.kubelet_registry_dir,
        pod_uid=settings.pod_uid,
        service=claims,
        metrics=metrics,
        on_fatal=supervisor.fail,
        on_status=lambda heard: reporter(readiness, KUBELET)(
            "" if heard.registered else heard.error or "refused without a reason"
        ),
    )
    http = _http(settings, readiness=readiness, metrics=metrics, kubelet=kubelet)

    looking = discovery(
        settings,
        supervisor,
        library=library,
        hardware=hardware,
        entries=ledger.known,
        readiness=readiness,
        metrics=metrics,
    )
    supervisor.start("discovery", looking.run)
    lead = Leadership(
        locks,
        follows=lambda: readiness.well(SLICES),
        failed=reporter(readiness, SLICES),
    )
    supervisor.start("publisher", lead.led(publishing.run))
    supervisor.start("device status", lead.led(status.run))
    supervisor.start("lead", lead.run)
    try:
        kubelet.start()
        if http is not None:
            http.start()
        log.info("plugin started", node=identity.node, driver=identity.driver)
        supervisor.stop.wait()
    finally:
        supervisor.end()
        drained = kubelet.stop(_DRAIN)
        if http is not None:
            http.stop()
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


def _damaged(metrics: Metrics, where: Path, why: str) -> None:
    metrics.ledger_damaged()
    log.error(
        "ledger entry set aside; its claim is prepared anew when the kubelet asks",
        file=str(where),
        reason=why,
    )


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


def _own_folder(plugins: Path, own: Path) -> None:
    """Make our folder below the kubelet's, which must be there: elsewhere nobody would look."""
    if not plugins.is_dir():
        raise ConfigError(
            f"kubelet_plugins_dir {plugins} is not a folder; set it to <kubelet root>/plugins, and"
            " mount it into the pod at the same path"
        )
    try:
        own.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{own} cannot be made: {error.strerror}; the pod needs it mounted writable, as root"
        ) from error


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
