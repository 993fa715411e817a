"""Short forms of what the tests of partitions do with one GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pynvml

from driver.core.geometry import Geometry, MigProfile
from driver.core.snapshot import ComputeFacts, InstanceFacts
from driver.nvml import NvmlPartitions
from hack.simnvml.gpu import Gpu
from hack.simnvml.kit import Machine
from tests.nvml.conftest import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A GPU in MIG mode. `sim` is its other side."""

    node: Node
    index: int = 0

    @property
    def machine(self) -> Machine:
        return self.node.machine

    @property
    def sim(self) -> Gpu:
        return self.machine.gpu(self.index)

    @property
    def uuid(self) -> Any:
        return self.sim.uuid

    @property
    def partitions(self) -> NvmlPartitions:
        return self.node.partitions

    @property
    def geometry(self) -> Geometry:
        found = self.node.gpu(self.index).mig.geometry
        assert found is not None
        return found

    def profile(self, name: str = "1g.10gb") -> MigProfile:
        return self.geometry.profile(name)

    def create(self, profile: MigProfile | str = "1g.10gb", place: int = 0) -> int:
        """`place`: which of its placements."""
        chosen = self.profile(profile) if isinstance(profile, str) else profile
        return self.partitions.create(self.uuid, chosen, chosen.placements[place])

    def compute(self, instance: int) -> ComputeFacts:
        return self.partitions.create_compute(self.uuid, instance)

    def instances(self) -> tuple[InstanceFacts, ...]:
        return self.partitions.instances(self.uuid)

    def remove(self, instance: int, compute: int) -> None:
        self.partitions.destroy_compute(self.uuid, instance, compute)
        self.partitions.destroy(self.uuid, instance)


def cut(node: Node, index: int = 0) -> Cut:
    """In MIG mode, whatever that takes on the board."""
    gpu = node.machine.gpu(index)
    gpu.set(mig_pending=1)
    gpu.reset()
    return Cut(node=node, index=index)


def attributes(uuid: str) -> Any:
    """What an application in the partition is told."""
    return pynvml.nvmlDeviceGetAttributes(pynvml.nvmlDeviceGetHandleByUUID(uuid))
