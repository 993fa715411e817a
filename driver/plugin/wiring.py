"""Joins each use case to its adapters. `app.py` says in which order they live.

Why apart: what a use case is given (selectors, pauses, callbacks) is said in one place a use case,
and the life of the process can be read without it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Final

from driver.config.settings import PluginSettings
from driver.core.errors import NvmlError
from driver.core.ids import DeviceName
from driver.core.snapshot import PciAddress
from driver.kube.backoff import Backoff
from driver.kube.reflector import Reflector
from driver.kube.watching import Query
from driver.nvml import NvmlLibrary
from driver.observe.health import Readiness
from driver.observe.metrics import Metrics
from driver.plugin.discover import Discovery
from driver.plugin.node import Hardware, Identity
from driver.plugin.publish import Publisher
from driver.plugin.served import Served, ServedVersion
from driver.plugin.supervise import Supervisor, Wakeup
from driver.ports.kube import KubeApi
from driver.ports.state import Ledger
from driver.state import sysfs

GPUS: Final = "gpus"
SLICES: Final = "slices"
KUBELET: Final = "kubelet"
"""The conditions of readiness."""


class Topology:
    """Implements `driver.ports.nvml.PciTopology` over sysfs."""

    def __init__(self, settings: PluginSettings) -> None:
        self._root = settings.sys_root

    def pcie_root(self, address: PciAddress) -> str | None:
        return sysfs.pcie_root(self._root, address)

    def numa_node(self, address: PciAddress) -> int | None:
        return sysfs.numa_node(self._root, address)


def reporter(readiness: Readiness, condition: str) -> Callable[[str], None]:
    """Takes a problem, or an empty text for none."""

    def report(problem: str) -> None:
        if problem:
            readiness.failing(condition, problem)
        else:
            readiness.well(condition)

    return report


def discovery(
    settings: PluginSettings,
    supervisor: Supervisor,
    hardware: Hardware,
    readiness: Readiness,
    metrics: Metrics,
) -> Discovery:
    def failed(error: NvmlError) -> None:
        metrics.nvml_failed(error.call, error.code)

    return Discovery(
        NvmlLibrary(
            driver_root=settings.driver_root,
            topology=Topology(settings),
            library=settings.nvml_library,
        ),
        hardware,
        pci_gpus=lambda: len(sysfs.pci_gpus(settings.sys_root)),
        report=reporter(readiness, GPUS),
        failed=failed,
        rescan=settings.rescan_seconds,
        pauses=Backoff(base=0.5, cap=30.0),
        wakeup=supervisor.wakeup(),
    )


def publisher(
    settings: PluginSettings,
    supervisor: Supervisor,
    *,
    identity: Identity,
    hardware: Hardware,
    api: KubeApi,
    served: ServedVersion,
    in_use: Callable[[], Collection[DeviceName]],
    readiness: Readiness,
    metrics: Metrics,
    wakeup: Wakeup,
) -> Publisher:
    def follow(version: Served, wake: Callable[[], None]) -> Reflector:
        fields = f"spec.driver={identity.driver},spec.nodeName={identity.node}"
        reflector = Reflector(
            api,
            Query(resource=version.slices, fields=fields),
            listed=lambda: metrics.relisted(version.slices.plural),
        )
        reflector.subscribe(lambda _change: wake())

        def run(stop: threading.Event) -> None:
            reflector.run(stop)

        supervisor.start("reflector", run)
        return reflector

    return Publisher(
        identity=identity,
        hardware=hardware,
        api=api,
        served=served,
        follow=follow,
        in_use=in_use,
        report=reporter(readiness, SLICES),
        metrics=metrics,
        resync=settings.resync_seconds,
        pauses=Backoff(base=0.5, cap=30.0),
        wakeup=wakeup,
    )


def in_use(ledger: Ledger, identity: Identity) -> frozenset[DeviceName]:
    """Devices that a container of this boot may be using."""
    return frozenset(
        holding.device
        for entry in ledger.entries().values()
        if entry.boot_id == identity.boot_id
        for holding in entry.holdings
    )
