"""Joins the sources of health signals to those who weigh and withhold.

    sources -> Custody (evidence, stored) -> Monitor (judgement) -> Judged -> slices, stream,
    refusals, node condition, Events; Probes look at the evidence, and add to it

Why apart from the plugin's own wiring: health is one use case with many parts, and can be switched
off as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from driver.config.catalogue import load_catalogue
from driver.config.settings import PluginSettings
from driver.core.health.judge import JudgeSettings
from driver.core.health.probing import Policy
from driver.core.health.signals import Fault, Signal, Source
from driver.core.ids import DeviceName, GpuUuid
from driver.cuda.locate import find_library
from driver.cuda.prober import Limits, Prober
from driver.kube.backoff import Backoff
from driver.nvml import NvmlLibrary
from driver.nvml.events import NvmlEvents
from driver.nvml.health import Around, NvmlPoll
from driver.observe.dcgm import DcgmExporter
from driver.observe.metrics import Metrics
from driver.plugin.discover import Discovery
from driver.plugin.health.condition import NodeCondition
from driver.plugin.health.custody import Custody
from driver.plugin.health.ending import Ending
from driver.plugin.health.judged import Judged, Taints
from driver.plugin.health.kernel import KernelWitness
from driver.plugin.health.monitor import Monitor
from driver.plugin.health.places import Places
from driver.plugin.health.probes import Probes
from driver.plugin.health.told import Told
from driver.plugin.leadership import Leadership
from driver.plugin.node import Hardware, Identity
from driver.plugin.partitions import Partitions
from driver.plugin.recover import Tell
from driver.plugin.release_window import ReleaseWindow
from driver.plugin.stores import Stores
from driver.plugin.supervise import Supervisor
from driver.ports.health import HealthSource
from driver.ports.kube import KubeApi
from driver.state import sysfs
from driver.state.device_nodes import DeviceNodes, Place, Trees
from driver.state.evidence import EvidenceFile
from driver.state.kmsg import KernelLog
from driver.state.kmsg_position import PositionFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """All of it, built and not yet running. Implements `driver.plugin.claims.Fitness`."""

    custody: Custody
    judged: Judged
    monitor: Monitor
    probes: Probes
    kernel: KernelWitness
    condition: NodeCondition
    places: Places
    window: ReleaseWindow
    sources: tuple[HealthSource, ...]
    told: Told
    ending: Ending
    hardware: Hardware

    def lead(self) -> None:
        """From now on we speak for the node."""
        self.custody.lead()
        self.told.lead()

    def taints(self) -> Taints:
        """For publishing: no device that was just found may be published without its own."""
        inventory = self.hardware.inventory
        if inventory and inventory.devices.keys() != self.judged.judgements.devices.keys():
            self.monitor.judge()
        return self.ending.softened(self.judged.taints())

    def refusal(self, devices: Iterable[tuple[DeviceName, GpuUuid]]) -> str:
        self.custody.refresh()
        return self.window.refusal() or self.judged.refusal(devices)

    def make_way(self, gpus: Collection[GpuUuid]) -> None:
        self.probes.make_way(gpus)

    def start(self, supervisor: Supervisor, lead: Leadership) -> None:
        """Everything runs in the plugin that leads alone; the others know what is stored."""
        supervisor.start("release window", self.window.run)
        supervisor.start("health", lead.led(self.monitor.run))
        supervisor.start("health probes", lead.led(self.probes.run))
        supervisor.start("health kernel", lead.led(self.kernel.run))
        supervisor.start("node condition", lead.led(self.condition.run))
        for source in self.sources:
            supervisor.start(f"health {source.name}", lead.led(source.run))


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What health is given of the rest of the plugin."""

    settings: PluginSettings
    supervisor: Supervisor
    identity: Identity
    hardware: Hardware
    api: KubeApi
    library: NvmlLibrary
    partitions: Partitions
    stores: Stores
    discovery: Discovery
    metrics: Metrics
    tell: Tell


def build_health(node: Node, *, damaged: Callable[[Path, str], None]) -> Health:
    """ConfigError names the row of a catalogue that is wrong, StateError evidence that is newer."""
    settings, identity, supervisor = node.settings, node.identity, node.supervisor
    places = Places(node.hardware, entries=node.stores.ledger.known, boot_id=identity.boot_id)
    custody = Custody(
        EvidenceFile(settings.plugin_dir, settings.node_name, on_damage=damaged),
        boot_id=identity.boot_id,
        identity=places.identity,
        silent=_switched_off(settings),
    )
    judged = Judged(driver=identity.driver, pool=identity.pool, ending=settings.no_execute_faults)
    condition = NodeCondition(
        node.api,
        node=identity.node,
        pauses=Backoff(base=0.5, cap=60.0),
        wakeup=supervisor.wakeup(),
    )
    told = Told(
        judged, node.hardware, tell=node.tell, condition=condition.set, metrics=node.metrics
    )
    monitor = Monitor(
        custody,
        node.hardware,
        judged,
        settings=JudgeSettings(debounce=settings.unknown_seconds),
        wakeup=supervisor.wakeup(),
    )
    window = ReleaseWindow(node.library, wakeup=supervisor.wakeup())
    probes = _probes(node, custody, places, window)
    judged.subscribe(probes.look)
    node.hardware.subscribe(probes.look)
    kernel, sources = _sources(node, custody, places, window)
    monitor.judge()
    return Health(
        custody=custody,
        judged=judged,
        monitor=monitor,
        probes=probes,
        kernel=kernel,
        condition=condition,
        places=places,
        window=window,
        sources=sources,
        told=told,
        ending=Ending(node.api),
        hardware=node.hardware,
    )


def _probes(node: Node, custody: Custody, places: Places, window: ReleaseWindow) -> Probes:
    settings = node.settings

    def unused(gpu: GpuUuid) -> None:
        """MIG mode off where we may, so that the GPU can be probed as a whole."""
        inventory = node.hardware.inventory
        facts = inventory.gpus.get(gpu) if inventory else None
        if facts is not None and facts.mig.switchable:
            node.partitions.switch_off_if_empty(gpu)
            node.discovery.again()

    probes = Probes(
        custody,
        places,
        node.hardware,
        Prober(
            library=lambda: find_library(settings.driver_root),
            limits=Limits(deadline=settings.probe_deadline_seconds),
        ),
        locks=node.stores.locks,
        policy=Policy(period=settings.probe_period_seconds),
        metrics=node.metrics,
        unused=unused,
        wakeup=node.supervisor.wakeup(),
        closed=window.is_open,
    )
    window.subscribe(let_go=probes.let_go, ended=probes.look)
    return probes


def _sources(
    node: Node, custody: Custody, places: Places, window: ReleaseWindow
) -> tuple[KernelWitness, tuple[HealthSource, ...]]:
    settings, supervisor = node.settings, node.supervisor
    sink = _sink(custody, node.metrics)
    polling = supervisor.wakeup()
    kernel = KernelWitness(
        custody,
        places,
        load_catalogue(settings.xid_catalogue),
        look_soon=polling.wake,
        metrics=node.metrics,
        wakeup=supervisor.wakeup(),
        user_records=settings.kmsg_user_records,
    )
    poll = NvmlPoll(
        node.library,
        around=Around(
            known=lambda: {uuid: where for where, uuid in places.addresses().items()},
            bus=lambda: sysfs.pci_gpus(settings.sys_root),
            held=places.holds,
        ),
        sink=sink,
        alarm=polling,
        period=settings.health_seconds,
        hang_after=settings.nvml_hang_seconds,
        on_gpus=lambda: events.remake(),  # noqa: PLW0108 - it is made below
        on_look=kernel.looked,
    )
    events = NvmlEvents(
        node.library,
        sink=sink,
        on_xid=kernel.xid,
        alarm=supervisor.wakeup(),
        look_soon=polling.wake,
        on_mig_change=node.discovery.again,
        hang_after=settings.nvml_hang_seconds,
    )
    for look in (node.discovery.again, poll.look_soon, events.remake):
        window.subscribe(ended=look)
    sources: list[HealthSource] = [
        poll,
        DeviceNodes(
            Trees(
                dev=lambda: node.stores.driver_root.dev()[0],
                proc=settings.proc_root,
                sys=settings.sys_root,
            ),
            gpus=lambda: _seats(node.hardware),
            sink=sink,
            alarm=supervisor.wakeup(),
        ),
    ]
    if not settings.nvml_idle_seconds:
        # Who listens holds NVML open.
        sources.append(events)
    if settings.kmsg_path is not None:
        sources.append(
            KernelLog(
                settings.kmsg_path,
                position=PositionFile(settings.plugin_dir),
                boot=lambda: sysfs.boot_id(settings.proc_root),
                on_record=kernel.record,
                sink=sink,
            )
        )
    if settings.dcgm_url:
        sources.append(
            DcgmExporter(
                settings.dcgm_url,
                gpus=lambda: places.addresses().values(),
                branch=kernel.branch,
                sink=sink,
                alarm=supervisor.wakeup(),
            )
        )
    return kernel, tuple(sources)


def _switched_off(settings: PluginSettings) -> tuple[Source, ...]:
    """What they could not tell is not waited for."""
    given = {
        Source.KERNEL: settings.kmsg_path,
        Source.DCGM: settings.dcgm_url,
        Source.EVENTS: not settings.nvml_idle_seconds,
    }
    return tuple(source for source, where in given.items() if not where)


def _sink(custody: Custody, metrics: Metrics) -> Callable[[Signal], None]:
    def take(signal: Signal) -> None:
        if isinstance(signal, Fault):
            metrics.health_fault(signal.source.value)
        custody.take(signal)

    return take


def _seats(hardware: Hardware) -> tuple[Place, ...]:
    inventory = hardware.inventory
    if inventory is None:
        return ()
    return tuple(Place(gpu=g.uuid, minor=g.minor, pci=g.pci) for g in inventory.gpus.values())
