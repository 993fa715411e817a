"""What a device in a slice stands for, and how it is described there.

A device is a whole GPU, one partition at one place, or one of several partitions whose place is
chosen at preparation. Must not know slices, order or counters.

Attribute names and spellings are for ever: selectors in users' claims depend on them. Partitions
carry few, because the scheduler reads every attribute of every candidate.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from api.resource.limits import MAX_TEXT_BYTES, is_semver
from api.resource.types import Attribute, Device, Number, Text, Version
from driver.core.geometry import MigProfile, Offer, Placement
from driver.core.ids import DeviceName
from driver.core.occupancy import Partition, Ref, Whole
from driver.core.snapshot import DriverFacts, GpuFacts, InstanceFacts

STANDARD: Final = "resource.kubernetes.io"
PCI_BUS_ID: Final = f"{STANDARD}/pciBusID"
PCIE_ROOT: Final = f"{STANDARD}/pcieRoot"
PARENT: Final = "parentUUID"
EVERY_SLOT: Final = -1
"""As a mask: all bits, however many slots the GPU has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FullGpu:
    """A whole GPU as one device."""

    name: DeviceName
    gpu: GpuFacts

    @property
    def ref(self) -> Ref:
        return Whole(gpu=self.gpu.uuid)

    @property
    def slots(self) -> int:
        return EVERY_SLOT


@dataclass(frozen=True, slots=True, kw_only=True)
class MigPartition:
    """One profile at one start. `existing`: an administrator made it, and it is used as it is."""

    name: DeviceName
    gpu: GpuFacts
    profile: MigProfile
    start: int
    existing: InstanceFacts | None = None

    @property
    def ref(self) -> Ref:
        return Partition(gpu=self.gpu.uuid, profile=self.profile.name, start=self.start)

    @property
    def slots(self) -> int:
        return self.profile.mask(self.start)

    @property
    def placement(self) -> Placement:
        return next(p for p in self.profile.placements if p.start == self.start)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatePartition:
    """One of the partitions of a profile on a GPU; where it lies is not known before preparation.

    `offer`: what shares the GPU with it, from which a start is chosen.
    """

    name: DeviceName
    gpu: GpuFacts
    profile: MigProfile
    ordinal: int
    offer: Offer

    @property
    def ref(self) -> Ref:
        return self.place

    @property
    def place(self) -> Partition:
        """As packing counts it."""
        return Partition(gpu=self.gpu.uuid, profile=self.profile.name, start=self.ordinal)

    @property
    def slots(self) -> int:
        """Those that it may come to lie on."""
        return EVERY_SLOT

    def at(self, start: int) -> MigPartition:
        """The partition that it becomes, under the name by which it was allocated."""
        return MigPartition(name=self.name, gpu=self.gpu, profile=self.profile, start=start)


Allocatable = FullGpu | MigPartition | LatePartition


def describe(device: Allocatable, driver: DriverFacts, *, full: bool = False) -> Device:
    """The device as it is published, without counters. `full`: all attributes on partitions too.

    A value that the API would refuse is left out, not sent.
    """
    if isinstance(device, FullGpu):
        memory = device.gpu.memory
        return Device(
            name=device.name,
            attributes=tuple({"type": Text("gpu"), **_whole(device.gpu, driver)}.items()),
            capacity=() if memory is None else (("memory", memory),),
        )
    own: dict[str, Attribute] = {
        "type": Text("mig"),
        "profile": Text(device.profile.name),
        PARENT: Text(device.gpu.uuid),
    }
    inherited = _whole(device.gpu, driver)
    kept = inherited if full else {k: v for k, v in inherited.items() if k in _LEAN}
    kept.pop("uuid", None)
    existing = device.existing if isinstance(device, MigPartition) else None
    if existing is not None and existing.compute:
        own["uuid"] = Text(existing.compute[0].uuid)
    return Device(
        name=device.name,
        attributes=tuple({**kept, **own}.items()),
        capacity=_capacity(device.profile, full=full),
    )


_LEAN: Final = ("productName", PCIE_ROOT)


def _capacity(profile: MigProfile, *, full: bool) -> tuple[tuple[str, int], ...]:
    memory = ("memory", profile.memory_mib * 2**20)
    if not full:
        return (memory,)
    return (
        memory,
        ("multiprocessors", profile.multiprocessors),
        ("copyEngines", profile.copy_engines),
        ("decoders", profile.decoders),
        ("encoders", profile.encoders),
        ("jpegEngines", profile.jpeg),
        ("ofaEngines", profile.ofa),
    )


def _whole(gpu: GpuFacts, driver: DriverFacts) -> dict[str, Attribute]:
    texts: Mapping[str, str | None] = {
        "uuid": gpu.uuid,
        "productName": gpu.product,
        "brand": gpu.brand,
        "architecture": gpu.architecture,
        "addressingMode": gpu.addressing_mode,
        "nvlinkDomain": gpu.nvlink_domain,
        PCI_BUS_ID: str(gpu.pci),
        PCIE_ROOT: gpu.pcie_root,
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
    return attributes


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
