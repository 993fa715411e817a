"""Makes the sources of health signals that the settings ask for, and joins them to evidence.

Why apart: which source needs what is long, and says nothing about what is done with a signal.
"""

from __future__ import annotations

from driver.config.catalogue import load_catalogue
from driver.config.settings import PluginSettings
from driver.core.health.signals import Source
from driver.nvml.events import NvmlEvents
from driver.nvml.health import Around, NvmlPoll
from driver.observe.dcgm import DcgmExporter
from driver.plugin.given import Node
from driver.plugin.health.custody import Custody
from driver.plugin.health.kernel import KernelWitness
from driver.plugin.health.places import Places
from driver.plugin.health.placing import Placing
from driver.plugin.node import Hardware
from driver.plugin.release_window import ReleaseWindow
from driver.ports.health import HealthSource
from driver.state import sysfs
from driver.state.device_nodes import DeviceNodes, Place, Trees
from driver.state.kmsg import KernelLog
from driver.state.kmsg_position import PositionFile


def build_sources(
    node: Node, custody: Custody, places: Places, window: ReleaseWindow
) -> tuple[KernelWitness, tuple[HealthSource, ...]]:
    settings, supervisor = node.settings, node.supervisor
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
            known=lambda: {uuid: gpu.pci for uuid, gpu in custody.evidence.gpus.items()},
            bus=lambda: sysfs.pci_gpus(settings.sys_root),
            held=places.holds,
        ),
        sink=custody.take,
        alarm=polling,
        period=settings.health_seconds,
        hang_after=settings.nvml_hang_seconds,
        on_gpus=lambda: events.remake(),  # noqa: PLW0108 - it is made below
        on_look=kernel.looked,
    )
    events = NvmlEvents(
        node.library,
        sink=custody.take,
        on_xid=kernel.xid,
        alarm=supervisor.wakeup(),
        look_soon=polling.wake,
        on_mig_change=node.discovery.cut,
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
            sink=custody.take,
            alarm=supervisor.wakeup(),
        ),
    ]
    if not settings.nvml_idle_seconds:
        # Who listens holds NVML open.
        sources.append(events)
    if settings.kmsg_path is not None:
        placing = Placing(node.hardware, custody, wakeup=supervisor.wakeup())
        sources.append(
            KernelLog(
                settings.kmsg_path,
                position=PositionFile(settings.plugin_dir),
                boot=lambda: sysfs.boot_id(settings.proc_root),
                on_record=kernel.record,
                sink=custody.take,
                wait=placing.wait,
                keeps=placing.keeps,
            )
        )
    if settings.dcgm_url:
        sources.append(
            DcgmExporter(
                settings.dcgm_url,
                gpus=lambda: places.addresses().values(),
                branch=kernel.branch,
                sink=custody.take,
                alarm=supervisor.wakeup(),
            )
        )
    return kernel, tuple(sources)


def switched_off(settings: PluginSettings) -> tuple[Source, ...]:
    """What they could not tell is not waited for."""
    given = {
        Source.KERNEL: settings.kmsg_path,
        Source.DCGM: settings.dcgm_url,
        Source.EVENTS: not settings.nvml_idle_seconds,
    }
    return tuple(source for source, where in given.items() if not where)


def _seats(hardware: Hardware) -> tuple[Place, ...]:
    inventory = hardware.inventory
    if inventory is None:
        return ()
    return tuple(Place(gpu=g.uuid, minor=g.minor, pci=g.pci) for g in inventory.gpus.values())
