"""What this node can give, from what NVML said and what the administrator chose.

The first arrow of the data's way: `NodeSnapshot -> Inventory`. Must not know slices or the order in
which devices are offered; `pools.py` does that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from driver.core.boards import boards
from driver.core.choices import DEFAULT, Choices
from driver.core.counters import Counters, Inexpressible, find_counters
from driver.core.devices import Allocatable, FullGpu, LatePartition, MigPartition
from driver.core.geometry import Offer
from driver.core.ids import DeviceName, GpuUuid
from driver.core.late_counters import LateCounters, find_late_counters
from driver.core.modes import Assigned, assign
from driver.core.names import gpu_device_names, late_name, partition_name
from driver.core.occupancy import Board, Ref
from driver.core.snapshot import DriverFacts, GpuFacts, NodeSnapshot
from driver.core.static_order import starts_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """All devices of the node, by name, in the order of PCI address, and the driver behind them.

    `boards`: the GPUs as packing sees them; `static`: those that an administrator cut.
    `counters`: of those whose devices exclude each other.
    `modes`: what each GPU is used as, and why one is withheld; `refused`: why a GPU is published
    without what its mode asks for; `unfound`: listed profiles that no GPU has that was read.
    """

    driver: DriverFacts
    devices: Mapping[DeviceName, Allocatable]
    boards: tuple[Board, ...] = ()
    static: tuple[Board, ...] = ()
    counters: Mapping[GpuUuid, Counters | LateCounters] = field(default_factory=dict)
    modes: Mapping[GpuUuid, Assigned] = field(default_factory=dict)
    refused: Mapping[GpuUuid, str] = field(default_factory=dict)
    unfound: tuple[str, ...] = ()
    gpus: Mapping[GpuUuid, GpuFacts] = field(default_factory=dict)

    def named(self) -> dict[Ref, DeviceName]:
        """The name of each device, by what it is."""
        return {d.ref: name for name, d in self.devices.items()}

    def gpu_uuids(self) -> frozenset[GpuUuid]:
        return frozenset(d.gpu.uuid for d in self.devices.values())


def build_inventory(snapshot: NodeSnapshot, choices: Choices = DEFAULT) -> Inventory:
    """Every GPU that answers, used as its mode says. ConfigError: a choice does not fit it."""
    gpus = sorted(snapshot.gpus, key=lambda g: g.pci)
    names = gpu_device_names(g.uuid for g in gpus)
    modes = assign(gpus, choices.rules)
    made = boards(gpus, modes, choices.profiles, choices.binding, complete=snapshot.complete)
    facts = {g.uuid: g for g in gpus}
    counters: dict[GpuUuid, Counters | LateCounters] = {}
    for board in made.boards:
        # Without a partition to exclude, a counter would be consumed that no slice holds.
        if board.offer is None or not board.partitions():
            continue
        if (found := _counters(board.offer)) is not None:
            counters[board.uuid] = found
    devices: dict[DeviceName, Allocatable] = {}
    for board in made.boards:
        gpu, name = facts[board.uuid], names[board.uuid]
        if board.full:
            devices[name] = FullGpu(name=name, gpu=gpu)
        devices.update((d.name, d) for d in _partitions(gpu, name, board))
    for board in made.static:
        there = _existing(facts[board.uuid], names[board.uuid])
        devices.update((d.name, d) for d in there if d.ref in made.existing)
    return Inventory(
        driver=snapshot.driver,
        devices=devices,
        boards=made.boards,
        static=made.static,
        refused=made.refused,
        unfound=made.unfound,
        counters=counters,
        modes=modes,
        gpus=facts,
    )


def without_counters(inventory: Inventory) -> Inventory:
    """What may be published where the server drops counters: whole GPUs and partitions that are
    there already. A GPU and its partitions would be given out side by side otherwise.
    """
    boards = tuple(replace(b, offer=None) for b in inventory.boards if b.full)
    cut = {b.uuid for b in inventory.boards}
    return replace(
        inventory,
        boards=boards,
        counters={},
        devices={
            name: device
            for name, device in inventory.devices.items()
            if isinstance(device, FullGpu) or device.gpu.uuid not in cut
        },
    )


def _counters(offer: Offer) -> Counters | LateCounters | None:
    """None where none can say what the board holds; it has no partitions then."""
    found = find_late_counters(offer) if offer.late else find_counters(offer)
    return None if isinstance(found, Inexpressible) else found


def _partitions(gpu: GpuFacts, name: DeviceName, board: Board) -> Iterator[Allocatable]:
    """One device for each profile and start that the board offers."""
    if board.offer is not None and board.offer.late:
        yield from _late_partitions(gpu, name, board.offer)
        return
    for profile in board.offer.profiles if board.offer else ():
        for placement in profile.placements:
            yield MigPartition(
                name=partition_name(name, profile.name, placement.start),
                gpu=gpu,
                profile=profile,
                start=placement.start,
            )


def _late_partitions(gpu: GpuFacts, name: DeviceName, offer: Offer) -> Iterator[LatePartition]:
    """As many devices of each profile as fit an empty GPU."""
    for profile, starts in starts_of(offer).items():
        for ordinal in starts:
            yield LatePartition(
                name=late_name(name, profile, ordinal),
                gpu=gpu,
                profile=offer.geometry.profile(profile),
                ordinal=ordinal,
                offer=offer,
            )


def _existing(gpu: GpuFacts, name: DeviceName) -> Iterator[MigPartition]:
    """One device for each partition that is there; half-made ones cannot be used."""
    profiles = {p.id: p for p in gpu.mig.geometry.profiles} if gpu.mig.geometry else {}
    for instance in gpu.mig.instances:
        profile = profiles.get(instance.profile_id)
        if profile is None or not instance.compute:
            continue
        yield MigPartition(
            name=partition_name(name, profile.name, instance.placement.start),
            gpu=gpu,
            profile=profile,
            start=instance.placement.start,
            existing=instance,
        )
