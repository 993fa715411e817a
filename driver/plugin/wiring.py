"""Joins each use case to its adapters. `app.py` says in which order they live.

Why apart: what a use case is given (selectors, pauses, callbacks) is said in one place a use case,
and the life of the process can be read without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from api.resource.types import Taint
from driver.config.settings import PluginSettings
from driver.core.choices import Choices
from driver.core.ids import ClaimUID, DeviceName
from driver.core.ledger import Entry
from driver.core.snapshot import PciAddress
from driver.kube.backoff import Backoff
from driver.kube.reflector import Reflector
from driver.kube.watching import Query
from driver.observe.health import Readiness
from driver.plugin.discover import Discovery
from driver.plugin.given import Node
from driver.plugin.node import Hardware
from driver.plugin.preparing.partitions import Partitions
from driver.plugin.publishing.allocations import Allocations, trim
from driver.plugin.publishing.publisher import Publisher
from driver.plugin.recovering.facts import FactFinder
from driver.plugin.recovering.lookup import ClaimLookup
from driver.plugin.recovering.recovery import Recovery
from driver.plugin.served import Served
from driver.plugin.supervise import Supervisor
from driver.ports.events import Reason
from driver.ports.nvml import GpuLibrary
from driver.state import sysfs

GPUS: Final = "gpus"
SLICES: Final = "slices"
KUBELET: Final = "kubelet"
"""The conditions of readiness."""
_GOOD_NEWS: Final = frozenset({Reason.ORPHAN_REMOVED, Reason.DEVICE_READY, Reason.DEVICE_RESET})


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


def choices(settings: PluginSettings) -> Choices:
    return Choices(
        rules=settings.rules,
        profiles=settings.profiles,
        policy=settings.policy,
        follow=settings.rerank == "dynamic",
        lean=settings.partition_attributes == "lean",
        min_whole_gpus=settings.min_whole_gpus,
        binding=settings.binding,
    )


def discovery(
    settings: PluginSettings,
    supervisor: Supervisor,
    *,
    library: GpuLibrary,
    hardware: Hardware,
    entries: Callable[[], Mapping[ClaimUID, Entry]],
    boot_id: str,
    readiness: Readiness,
) -> Discovery:
    return Discovery(
        library,
        hardware,
        pci_gpus=lambda: len(sysfs.pci_gpus(settings.sys_root)),
        report=reporter(readiness, GPUS),
        rescan=settings.rescan_seconds,
        choices=choices(settings),
        entries=entries,
        boot_id=boot_id,
        refuse=supervisor.fail,
        pauses=Backoff(base=0.5, cap=30.0),
        wakeup=supervisor.wakeup(),
        idle=settings.nvml_idle_seconds,
    )


def publisher(
    node: Node,
    allocations: Allocations,
    *,
    sick: Callable[[], Mapping[DeviceName, tuple[Taint, ...]]],
) -> Publisher:
    """Woken by its reflectors, and by whoever calls `changed`."""
    settings, identity, metrics = node.settings, node.identity, node.metrics
    chosen = choices(settings)

    def follow(version: Served) -> Reflector:
        fields = f"spec.driver={identity.driver},spec.nodeName={identity.node}"
        slices = Reflector(
            node.api,
            Query(resource=version.slices, fields=fields),
            listed=lambda: metrics.relisted(version.slices.plural),
        )
        slices.subscribe(made.slice_changed)
        node.supervisor.start("slice reflector", slices.run)
        if chosen.follow:
            claims = Reflector(
                node.api,
                Query(resource=version.claims),
                listed=lambda: metrics.relisted(version.claims.plural),
                keep=lambda obj: trim(obj, driver=identity.driver, pool=identity.pool),
            )
            allocations.follow(claims, on_change=made.allocated)
            node.supervisor.start("claim reflector", claims.run)
        return slices

    made = Publisher(
        identity=identity,
        hardware=node.hardware,
        api=node.api,
        served=node.served,
        choices=chosen,
        follow=follow,
        allocations=allocations,
        entries=node.stores.ledger.known,
        report=reporter(node.readiness, SLICES),
        metrics=metrics,
        resync=settings.resync_seconds,
        pauses=Backoff(base=0.5, cap=30.0),
        wakeup=node.supervisor.wakeup(),
        sick=sick,
    )
    return made


def recovery(node: Node, lookup: ClaimLookup, *, on_change: Callable[[int], None]) -> Recovery:
    """Discovery looks again when the ledger explains more or less than it did; `on_change` is told
    how many claims are prepared then.
    """
    settings, stores = node.settings, node.stores

    def repaired() -> None:
        on_change(len(stores.ledger.known()))
        node.discovery.again()

    made = Recovery(
        facts=FactFinder(
            identity=node.identity,
            hardware=node.hardware,
            ledger=stores.ledger,
            cdi=stores.cdi,
            driver_root=stores.driver_root,
            library=node.mig,
        ),
        lookup=lookup,
        hardware=node.hardware,
        ledger=stores.ledger,
        cdi=stores.cdi,
        library=node.mig,
        # What is in use now is looked at again later; nobody waits for it here.
        partitions=Partitions(node.mig, wait=lambda _: True),
        locks=stores.locks,
        turns=stores.turns,
        metrics=node.metrics,
        tell=node.tell,
        pause=settings.recovery_seconds,
        grace=settings.orphan_grace_seconds,
        wakeup=node.supervisor.wakeup(),
        on_change=repaired,
    )
    node.missed.heard_by(made.lost)
    return made
