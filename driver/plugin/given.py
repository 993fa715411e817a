"""What every use case of the plugin is given: the node's parts, made once.

Why it exists: publishing, preparing, recovering and health stand on the same ground. It is gathered
in one place (`gather.py`), so that each says only what it needs besides.
"""

from __future__ import annotations

from dataclasses import dataclass

from driver.config.settings import PluginSettings
from driver.kube.events import Recorder
from driver.nvml import NvmlLibrary, NvmlPartitions
from driver.observe.health import Readiness
from driver.observe.metrics import Metrics
from driver.plugin.discover import Discovery
from driver.plugin.node import Hardware, Identity
from driver.plugin.preparing.partitions import Partitions
from driver.plugin.recovering.missed import Missed
from driver.plugin.recovering.recovery import Tell
from driver.plugin.served import ServedVersion
from driver.plugin.stores import Stores
from driver.plugin.supervise import Supervisor
from driver.ports.kube import KubeApi


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """`mig` cuts GPUs, call by call; `partitions` makes and unmakes whole ones with it. `tell`:
    Events about the node, by way of `recorder`. `missed`: entries that the ledger lost.
    """

    settings: PluginSettings
    version: str
    supervisor: Supervisor
    readiness: Readiness
    metrics: Metrics
    identity: Identity
    api: KubeApi
    served: ServedVersion
    recorder: Recorder
    tell: Tell
    stores: Stores
    missed: Missed
    hardware: Hardware
    library: NvmlLibrary
    mig: NvmlPartitions
    partitions: Partitions
    discovery: Discovery
