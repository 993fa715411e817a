"""What is in use on this node, from the claims that the scheduler allocated and our own ledger.

Why it exists: the order of devices follows allocations, not preparations; and three things take
slots without an allocation: a claim that still runs here although its object is gone, an instance
that somebody else made, and a GPU that waits for a reset. Must not know the API's objects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from api.resource.types import Taint, TaintEffect
from driver.core.boards import kept_taint, kept_whole
from driver.core.capacity import table
from driver.core.choices import Choices
from driver.core.devices import EVERY_SLOT, Allocatable, LatePartition
from driver.core.geometry import Offer
from driver.core.ids import DeviceName, GpuUuid
from driver.core.inventory import Inventory
from driver.core.ledger import Entry
from driver.core.names import read_late_name
from driver.core.occupancy import Live, Partition, Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """A GPU instance that is in no entry of ours."""

    gpu: GpuUuid
    instance: int
    slots: int


def live_state(
    inventory: Inventory,
    allocated: Collection[DeviceName],
    entries: Iterable[Entry],
    foreign: Collection[Foreign],
) -> Live:
    """`allocated`: the devices of this pool that claims name, whatever their age."""
    partitions: set[Partition] = set()
    whole: set[GpuUuid] = set()
    for name in allocated:
        device = inventory.devices.get(name)
        match device.ref if device is not None else None:
            case Partition() as partition:
                partitions.add(partition)
            case Whole(gpu=gpu):
                whole.add(gpu)
    taken: dict[GpuUuid, int] = {}
    for entry in entries:
        for holding in entry.holdings:
            if holding.device in allocated or holding.admin_access:
                continue
            device = inventory.devices.get(holding.device)
            if isinstance(device, LatePartition):
                partitions.add(device.place)
            else:
                taken[holding.gpu] = taken.get(holding.gpu, 0) | _slots(
                    holding.mask, inventory, holding.gpu
                )
    for each in foreign:
        taken[each.gpu] = taken.get(each.gpu, 0) | _slots(each.slots, inventory, each.gpu)
    for gpu, assigned in inventory.modes.items():
        if assigned.withheld_reason:
            taken[gpu] = taken.get(gpu, 0) | _slots(EVERY_SLOT, inventory, gpu)
    return Live(partitions=frozenset(partitions), whole=frozenset(whole), withheld=taken)


def _slots(mask: int, inventory: Inventory, gpu: GpuUuid) -> int:
    """A mask of slots that the board has; any bit will do where it has none.

    Where places are chosen at preparation, sums do not say what fits around a slot that is taken.
    """
    if (offer := _late(inventory).get(gpu)) is not None:
        return table(offer).all_slots
    facts = inventory.gpus.get(gpu)
    geometry = facts.mig.geometry if facts else None
    return mask & (geometry.all_slots if geometry else 1)


def find_foreign(inventory: Inventory, entries: Iterable[Entry]) -> tuple[Foreign, ...]:
    """Instances on dynamic GPUs that no entry explains, by place: ids are used again.

    After a change of the binding, what was made before is not counted where the new devices are.
    """
    late = _late(inventory)
    ours = {
        (h.gpu, h.slot.start, h.slot.size)
        for e in entries
        for h in e.holdings
        if h.slot is not None
        and h.slot.ours
        and (read_late_name(h.device) is not None) == (h.gpu in late)
    }
    boards = {b.uuid for b in inventory.boards}
    return tuple(
        Foreign(gpu=gpu.uuid, instance=i.id, slots=i.placement.mask)
        for gpu in inventory.gpus.values()
        if gpu.uuid in boards
        for i in gpu.mig.instances
        if (gpu.uuid, i.placement.start, i.placement.size) not in ours
    )


def _late(inventory: Inventory) -> dict[GpuUuid, Offer]:
    """The boards on which places are chosen at preparation."""
    return {b.uuid: b.offer for b in inventory.boards if b.offer is not None and b.offer.late}


def withholding_taints(
    inventory: Inventory, live: Live, foreign: Collection[Foreign], choices: Choices, *, driver: str
) -> Mapping[DeviceName, tuple[Taint, ...]]:
    """The taints of every device that must not be given out, or only to those who insist."""
    reserved = kept_whole(inventory.boards, live, choices.min_whole_gpus)
    found: dict[DeviceName, tuple[Taint, ...]] = {}
    for name, device in inventory.devices.items():
        taints = [*_reasons(inventory, device, foreign, driver)]
        if device.gpu.uuid in reserved and isinstance(device.ref, Partition):
            taints.append(kept_taint(driver))
        if taints:
            found[name] = tuple(taints)
    return found


def _reasons(
    inventory: Inventory, device: Allocatable, foreign: Collection[Foreign], driver: str
) -> Iterable[Taint]:
    if inventory.modes[device.gpu.uuid].withheld_reason:
        yield _no_schedule(driver, "mig-mode", "pending")
    if any(f.gpu == device.gpu.uuid and f.slots & device.slots for f in foreign):
        yield _no_schedule(driver, "foreign", "instance")


def _no_schedule(driver: str, family: str, value: str) -> Taint:
    return Taint(key=f"{driver}/{family}", value=value, effect=TaintEffect.NO_SCHEDULE)


def joined(
    *each: Mapping[DeviceName, tuple[Taint, ...]],
) -> Mapping[DeviceName, tuple[Taint, ...]]:
    """All taints of every device, from several reasons."""
    found: dict[DeviceName, tuple[Taint, ...]] = {}
    for taints in each:
        for name, more in taints.items():
            found[name] = (*found.get(name, ()), *more)
    return found
