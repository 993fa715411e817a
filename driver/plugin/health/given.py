"""What health is given of the rest of the plugin."""

from __future__ import annotations

from dataclasses import dataclass

from driver.config.settings import PluginSettings
from driver.nvml import NvmlLibrary
from driver.observe.metrics import Metrics
from driver.plugin.discover import Discovery
from driver.plugin.node import Hardware, Identity
from driver.plugin.preparing.partitions import Partitions
from driver.plugin.recovering.recovery import Tell
from driver.plugin.stores import Stores
from driver.plugin.supervise import Supervisor
from driver.ports.kube import KubeApi


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The parts that are there already, of one plugin."""

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
