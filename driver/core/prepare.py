"""What must be done to the hardware before a claim's devices can be used, as ordered steps.

Why it exists: the order and the undoing are decided here, where a table can test them; the plugin
carries steps out and takes them back in reverse. Must not know NVML.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from driver.core.claims import Intent
from driver.core.devices import LatePartition, MigPartition
from driver.core.geometry import MigProfile, Placement
from driver.core.ids import DeviceName, GpuUuid
from driver.core.ledger import Made


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchMode:
    """MIG mode on before the first partition, off before the whole GPU is used. Undone by nothing:
    the mode goes off by itself when the last partition of the GPU is gone.
    """

    gpu: GpuUuid
    on: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MakePartition:
    """GPU instance at exactly this place, and its default compute instance. Undone by destroying
    both, in reverse.
    """

    gpu: GpuUuid
    device: DeviceName
    profile: MigProfile
    placement: Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class FindPartition:
    """The administrator's partition must still be there, and still be the same."""

    gpu: GpuUuid
    device: DeviceName
    expected: Made
    placement: Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPartition:
    """For admin access: whoever holds the partition has made it, and destroys it."""

    gpu: GpuUuid
    device: DeviceName
    profile: MigProfile
    placement: Placement


Step = SwitchMode | MakePartition | FindPartition | OpenPartition


def plan_steps(intent: Intent, *, left: Collection[DeviceName] = ()) -> tuple[Step, ...]:
    """Modes first, then partitions by device name. Claims with admin access change nothing, nor
    does what the claim has already, `left`.
    """
    switches: list[Step] = []
    partitions: list[Step] = []
    wanted = sorted(
        (w for w in intent.wanted if w.device.name not in left), key=lambda w: w.device.name
    )
    for each in wanted:
        device, gpu = each.device, each.device.gpu
        if isinstance(device, LatePartition):
            raise TypeError(f"{device.name} has no start yet; bind the intent first")
        if not isinstance(device, MigPartition):
            if gpu.mig.switchable and not each.admin_access:
                switches.append(SwitchMode(gpu=gpu.uuid, on=False))
        elif device.existing is not None and device.existing.compute:
            compute = device.existing.compute[0]
            made = Made(instance=device.existing.id, compute=compute.id, uuid=compute.uuid)
            partitions.append(
                FindPartition(
                    gpu=gpu.uuid,
                    device=device.name,
                    expected=made,
                    placement=device.placement,
                )
            )
        elif each.admin_access:
            partitions.append(
                OpenPartition(
                    gpu=gpu.uuid,
                    device=device.name,
                    profile=device.profile,
                    placement=device.placement,
                )
            )
        else:
            if gpu.mig.switchable:
                switches.append(SwitchMode(gpu=gpu.uuid, on=True))
            partitions.append(
                MakePartition(
                    gpu=gpu.uuid,
                    device=device.name,
                    profile=device.profile,
                    placement=device.placement,
                )
            )
    return (*dict.fromkeys(switches), *partitions)
