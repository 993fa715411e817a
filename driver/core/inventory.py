"""What this node can give, from what NVML said.

The first arrow of the data's way: `NodeSnapshot -> Inventory`. Must not know slices or the order in
which devices are offered; `pools.py` does that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from api.resource.limits import MAX_TEXT_BYTES, is_semver
from api.resource.types import Attribute, Device, Number, Text, Version
from driver.core.ids import DeviceName, GpuUuid
from driver.core.names import gpu_device_names
from driver.core.snapshot import DriverFacts, GpuFacts, NodeSnapshot

STANDARD: Final = "resource.kubernetes.io"
PCI_BUS_ID: Final = f"{STANDARD}/pciBusID"


@dataclass(frozen=True, slots=True, kw_only=True)
class FullGpu:
    """A whole GPU as one device."""

    name: DeviceName
    gpu: GpuFacts


Allocatable = FullGpu
"""What a device in a slice stands for; partitions join here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """All devices of the node, by name, ordered by PCI address, and the driver that serves them."""

    driver: DriverFacts
    devices: Mapping[DeviceName, Allocatable]

    def gpu_uuids(self) -> frozenset[GpuUuid]:
        return frozenset(d.gpu.uuid for d in self.devices.values())


def build_inventory(snapshot: NodeSnapshot) -> Inventory:
    """One full device for each GPU that answers and is not in MIG mode.

    In MIG mode a GPU runs nothing outside a partition: as a whole it would be a dead device.
    """
    names = gpu_device_names(g.uuid for g in snapshot.gpus)
    ordered = sorted((g for g in snapshot.gpus if not g.mig.enabled), key=lambda g: g.pci)
    return Inventory(
        driver=snapshot.driver,
        devices={names[g.uuid]: FullGpu(name=names[g.uuid], gpu=g) for g in ordered},
    )


def describe(device: Allocatable, driver: DriverFacts) -> Device:
    """The device as it is published. A value that the API would refuse is left out, not sent.

    Attribute names and spellings are for ever: selectors in users' claims depend on them.
    """
    gpu = device.gpu
    texts = {
        "type": "gpu",
        "uuid": gpu.uuid,
        "productName": gpu.product,
        "brand": gpu.brand,
        "architecture": gpu.architecture,
        "addressingMode": gpu.addressing_mode,
        "nvlinkDomain": gpu.nvlink_domain,
        PCI_BUS_ID: str(gpu.pci),
        f"{STANDARD}/pcieRoot": gpu.pcie_root,
    }
    versions = {
        "driverVersion": semantic_version(driver.driver),
        "cudaDriverVersion": _dotted(driver.cuda),
        "cudaComputeCapability": _dotted(gpu.compute_capability),
    }
    attributes: dict[str, Attribute] = {}
    attributes.update({k: Text(clamp(v)) for k, v in texts.items() if v is not None})
    attributes.update({k: Version(v) for k, v in versions.items() if v is not None})
    if gpu.numa_node is not None and gpu.numa_node >= 0:
        attributes[f"{STANDARD}/numaNode"] = Number(gpu.numa_node)
    return Device(
        name=device.name,
        attributes=tuple(attributes.items()),
        capacity=() if gpu.memory is None else (("memory", gpu.memory),),
    )


def clamp(text: str) -> str:
    """At most 64 bytes, cut between characters."""
    return text.encode()[:MAX_TEXT_BYTES].decode(errors="ignore")


def semantic_version(text: str) -> str | None:
    """`535.104.05` -> `535.104.5`, `12.4` -> `12.4.0`; None where no number leads.

    The API takes exactly three numbers without leading zeros; NVIDIA writes two to four.
    """
    found = re.match(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?", text)
    if not found:
        return None
    version = ".".join(str(int(part or 0)) for part in found.groups())
    return version if is_semver(version) else None


def _dotted(pair: tuple[int, int] | None) -> str | None:
    return None if pair is None else f"{pair[0]}.{pair[1]}.0"
