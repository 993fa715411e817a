"""Joins the sources of health signals to those who weigh and withhold.

    sources -> Custody (evidence, stored) -> Monitor (judgement) -> Judged -> slices, stream,
    refusals, node condition, Events; Probes look at the evidence, and add to it

Why apart from the plugin's own wiring: health is one use case with many parts, and can be switched
off as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from driver.core.health.judge import JudgeSettings
from driver.core.health.probing import Policy
from driver.core.ids import GpuUuid
from driver.cuda.locate import find_library
from driver.cuda.prober import Limits, Prober
from driver.kube.backoff import Backoff
from driver.plugin.given import Node
from driver.plugin.health.condition import NodeCondition
from driver.plugin.health.custody import Custody
from driver.plugin.health.judged import Judged
from driver.plugin.health.monitor import Monitor
from driver.plugin.health.places import Places
from driver.plugin.health.probes import Probes
from driver.plugin.health.server_taints import ServerTaints
from driver.plugin.health.sources import build_sources, switched_off
from driver.plugin.health.told import Told
from driver.plugin.health.whole import Health
from driver.plugin.preparing.gpu_locks import GpuLocks
from driver.plugin.release_window import ReleaseWindow
from driver.state.evidence import EvidenceFile

_PROBE_PATIENCE: Final = 1.0
"""Seconds for which a probe waits for a claim that is at work on its GPU; else it comes later."""


def build_health(node: Node, *, damaged: Callable[[Path, str], None]) -> Health:
    """ConfigError names the row of a catalogue that is wrong, StateError evidence that is newer."""
    settings, identity, supervisor = node.settings, node.identity, node.supervisor
    places = Places(node.hardware, entries=node.stores.ledger.known, boot_id=identity.boot_id)
    custody = Custody(
        EvidenceFile(settings.plugin_dir, settings.node_name, on_damage=damaged),
        boot_id=identity.boot_id,
        identity=places.identity,
        gpus=places.gpus,
        metrics=node.metrics,
        silent=switched_off(settings),
    )
    node.hardware.subscribe(custody.found)
    judged = Judged(driver=identity.driver, pool=identity.pool, ending=settings.no_execute_faults)
    condition = NodeCondition(
        node.api,
        node=identity.node,
        pauses=Backoff(base=0.5, cap=60.0),
        wakeup=supervisor.wakeup(),
    )
    told = Told(
        judged,
        node.hardware,
        known=lambda: custody.evidence.gpus,
        tell=node.tell,
        condition=condition.set,
        metrics=node.metrics,
    )
    monitor = Monitor(
        custody,
        node.hardware,
        judged,
        settings=JudgeSettings(debounce=settings.unknown_seconds),
        wakeup=supervisor.wakeup(),
    )
    window = ReleaseWindow(
        node.library, wakeup=supervisor.wakeup(), closes=bool(settings.nvml_idle_seconds)
    )
    probes = _probes(node, custody, places, window)
    judged.subscribe(probes.look)
    node.hardware.subscribe(probes.look)
    kernel, sources = build_sources(node, custody, places, window)
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
        server=ServerTaints(node.api),
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
        locks=GpuLocks(node.stores.named_locks, patience=_PROBE_PATIENCE),
        policy=Policy(period=settings.probe_period_seconds),
        metrics=node.metrics,
        unused=unused,
        wakeup=node.supervisor.wakeup(),
        closed=window.is_open,
    )
    window.subscribe(let_go=probes.let_go, ended=probes.look)
    return probes
