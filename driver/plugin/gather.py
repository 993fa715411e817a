"""Makes the parts that every use case of the plugin stands on: adapters, stores, hardware.

Must not know a use case, but for discovery, which fills the hardware in. Nothing runs yet: `app.py`
says in which order things live.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from driver.config.settings import PluginSettings
from driver.core.errors import ConfigError, StateError
from driver.kube.client import Client
from driver.kube.events import Recorder
from driver.kube.login import login
from driver.kube.versions import discover
from driver.nvml import NvmlLibrary, NvmlPartitions, on_failure
from driver.observe.health import Readiness
from driver.observe.logs import Log
from driver.observe.metrics import Metrics
from driver.plugin.given import Node
from driver.plugin.node import Hardware, Identity
from driver.plugin.preparing.partitions import Partitions
from driver.plugin.recovering.missed import Missed
from driver.plugin.recovering.recovery import Tell
from driver.plugin.served import ServedVersion
from driver.plugin.stores import open_stores
from driver.plugin.supervise import Supervisor
from driver.plugin.wiring import GPUS, KUBELET, SLICES, Topology, discovery
from driver.ports.events import Reason, Regarding
from driver.state.sysfs import boot_id

log = Log(__name__)

_GOOD_NEWS: Final = frozenset({Reason.ORPHAN_REMOVED, Reason.DEVICE_READY, Reason.DEVICE_RESET})


def gather(settings: PluginSettings, supervisor: Supervisor) -> Node:
    """ConfigError or StateError says why the process could never do its work."""
    release = _own_version()
    metrics = Metrics(version=release)
    readiness = Readiness(GPUS, SLICES, KUBELET, on_change=metrics.set_ready)
    identity = Identity(
        driver=settings.driver_name, node=settings.node_name, boot_id=_boot_id(settings.proc_root)
    )
    api = Client(
        login(kubeconfig=str(settings.kubeconfig or "")), user_agent=f"tessera-plugin/{release}"
    )
    recorder = Recorder(
        api,
        controller=identity.driver,
        instance=identity.node,
        dropped=metrics.event_dropped,
    )
    tell = _teller(recorder, identity.node)
    missed = Missed()
    stores = open_stores(
        settings, on_damage=lambda where, why: _damaged(metrics, tell, missed, where, why)
    )
    metrics.show_prepared_claims(lambda: len(stores.ledger.known()))
    on_failure(metrics.nvml_failed)
    hardware = Hardware()
    library = NvmlLibrary(
        driver_root=settings.driver_root,
        topology=Topology(settings),
        library=settings.nvml_library,
    )
    mig = NvmlPartitions(library)
    return Node(
        settings=settings,
        version=release,
        supervisor=supervisor,
        readiness=readiness,
        metrics=metrics,
        identity=identity,
        api=api,
        served=ServedVersion(lambda: discover(api).resource_version),
        recorder=recorder,
        tell=tell,
        stores=stores,
        missed=missed,
        hardware=hardware,
        library=library,
        mig=mig,
        partitions=Partitions(mig, wait=supervisor.stop.wait),
        discovery=discovery(
            settings,
            supervisor,
            library=library,
            hardware=hardware,
            entries=stores.ledger.known,
            boot_id=identity.boot_id,
            readiness=readiness,
        ),
    )


def _teller(recorder: Recorder, node: str) -> Tell:
    """Events about the node; by its name, as the kubelet does it."""
    about = Regarding(api_version="v1", kind="Node", name=node, uid=node)

    def tell(reason: Reason, note: str) -> None:
        recorder.event(about, reason, note, warning=reason not in _GOOD_NEWS)

    return tell


def _damaged(metrics: Metrics, tell: Tell, missed: Missed, where: Path, why: str) -> None:
    metrics.ledger_damaged()
    missed.tell()
    what = "the ledger was damaged; what is lost is made again from CDI files and the hardware"
    log.error(what, file=str(where), reason=why)
    tell(Reason.LEDGER_DAMAGED, f"{what}: {where}: {why}")


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
