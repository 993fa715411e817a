"""Health as the rest of the plugin sees it: may this be used, what is to be published, who leads.

Why it exists: those who publish and prepare must not know the parts behind an answer, and which of
them has to be asked first. Must not know how the parts are made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from driver.core.ids import DeviceName, GpuUuid
from driver.plugin.health.condition import NodeCondition
from driver.plugin.health.custody import Custody
from driver.plugin.health.judged import Judged, Taints
from driver.plugin.health.kernel import KernelWitness
from driver.plugin.health.monitor import Monitor
from driver.plugin.health.places import Places
from driver.plugin.health.probes import Probes
from driver.plugin.health.server_taints import ServerTaints
from driver.plugin.health.told import Told
from driver.plugin.leadership import Leadership
from driver.plugin.node import Hardware
from driver.plugin.release_window import ReleaseWindow
from driver.plugin.supervise import Supervisor
from driver.ports.health import HealthSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """All of it, built and not yet running. Implements `driver.plugin.preparing.claims.Fitness`."""

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
    server: ServerTaints
    hardware: Hardware

    def lead(self) -> None:
        """From now on we speak for the node."""
        self.custody.lead()
        self.told.lead()

    def follow(self) -> None:
        """From now on another plugin may."""
        self.told.follow()
        self.custody.follow()

    def taints(self) -> Taints:
        """For publishing: no device that was just found may be published without its own."""
        inventory = self.hardware.inventory
        if inventory and inventory.devices.keys() != self.judged.judgements.devices.keys():
            self.monitor.judge()
        return self.server.taken(self.judged.taints())

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
