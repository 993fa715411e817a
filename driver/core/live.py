"""What is in use on this node, from the claims that the scheduler allocated and our own ledger.

Why it exists: the order of devices follows allocations, not preparations; and there is more that
takes slots than allocations of devices that are offered: a claim that still runs here although its
object is gone, a device in use that is not offered any more, an instance that somebody else made,
and a GPU that waits for a reset. Must not know the API's objects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from api.resource.types import Taint, TaintEffect
from driver.core.boards import kept_taint, kept_whole
from driver.core.capacity import table
from driver.core.choices import Choices
from driver.core.devices import EVERY_SLOT, Allocatable, LatePartition
from driver.core.geometry import Geometry, Offer
from driver.core.ids import DeviceName, GpuUuid
from driver.core.inventory import Inventory
from driver.core.ledger import Entry
from driver.core.names import is_of_gpu, read_partition_name
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
    unlisted: dict[GpuUuid, int] = {}
    for name in allocated:
        device = inventory.devices.get(name)
        match device.ref if device is not None else None:
            case Partition() as partition:
                partitions.add(partition)
            case Whole(gpu=gpu):
                whole.add(gpu)
            case None:
                _add(unlisted, _places_of(inventory, name))
    taken: dict[GpuUuid, int] = {}
    for holding in (h for entry in entries for h in entry.holdings if not h.admin_access):
        device = inventory.devices.get(holding.device)
        if device is None:
            _add(unlisted, {holding.gpu: _slots(holding.mask, inventory, holding.gpu)})
        elif holding.device in allocated:
            continue
        elif isinstance(device, LatePartition):
            partitions.add(device.place)
        else:
            _add(taken, {holding.gpu: _slots(holding.mask, inventory, holding.gpu)})
    _add(taken, unlisted)
    boards = {b.uuid for b in inventory.boards}
    for each in foreign:
        _add(taken, {each.gpu: _slots(each.slots, inventory, each.gpu)})
    for gpu, assigned in inventory.modes.items():
        if assigned.withheld_reason:
            _add(taken, {gpu: _slots(EVERY_SLOT, inventory, gpu)})
    return Live(
        partitions=frozenset(partitions),
        whole=frozenset(whole),
        withheld=taken,
        unlisted={gpu: mask for gpu, mask in unlisted.items() if gpu in boards},
    )


def _add(taken: dict[GpuUuid, int], more: Mapping[GpuUuid, int]) -> None:
    for gpu, mask in more.items():
        taken[gpu] = taken.get(gpu, 0) | mask


def _places_of(inventory: Inventory, name: DeviceName) -> Mapping[GpuUuid, int]:
    """What a device that is not offered takes, by its name; all of its GPU where that does not say.
    Nothing on a GPU that an administrator cut: devices exclude nothing there.
    """
    for board in inventory.boards:
        if is_of_gpu(name, board.uuid):
            mask = _named_slots(inventory.gpus[board.uuid].mig.geometry, name)
            return {board.uuid: _slots(mask, inventory, board.uuid)}
    return {}


def _named_slots(geometry: Geometry | None, name: DeviceName) -> int:
    read = read_partition_name(name)
    places = (
        placement.mask
        for profile in (geometry.profiles if geometry and read else ())
        for placement in profile.placements
        if read and (profile.label, placement.start) == (read.label, read.start)
    )
    return next(places, EVERY_SLOT)


def _slots(mask: int, inventory: Inventory, gpu: GpuUuid) -> int:
    """A mask of slots that the board has; any bit will do where it has none.

    Where places are chosen at preparation, sums do not say what fits around a slot that is taken.
    """
    if (offer := _late(inventory).get(gpu)) is not None:
        return table(offer).all_slots
    facts = inventory.gpus.get(gpu)
    geometry = facts.mig.geometry if facts else None
    return mask & geometry.all_slots if geometry else int(mask != 0)


def find_foreign(inventory: Inventory, entries: Iterable[Entry]) -> tuple[Foreign, ...]:
    """Instances that no entry explains, on GPUs that we cut or offer as a whole; by place: ids are
    used again. The entry of a device that is not offered any more explains nothing: no counter need
    say that its slots are taken.
    """
    ours = {
        (h.gpu, h.slot.start, h.slot.size)
        for e in entries
        for h in e.holdings
        if h.slot is not None and h.slot.ours and h.device in inventory.devices
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
        taints = [*_reasons(inventory, live, device, foreign, driver)]
        if device.gpu.uuid in reserved and isinstance(device.ref, Partition):
            taints.append(kept_taint(driver))
        if taints:
            found[name] = tuple(taints)
    return found


def _reasons(
    inventory: Inventory,
    live: Live,
    device: Allocatable,
    foreign: Collection[Foreign],
    driver: str,
) -> Iterable[Taint]:
    if inventory.modes[device.gpu.uuid].withheld_reason:
        yield _no_schedule(driver, "mig-mode", "pending")
    others = (f.slots for f in foreign if f.gpu == device.gpu.uuid)
    if any(device.slots & slots for slots in (live.unlisted.get(device.gpu.uuid, 0), *others)):
        yield foreign_taint(driver)


def foreign_taint(driver: str) -> Taint:
    """On devices that overlap what no claim of ours explains, or what is not offered any more."""
    return _no_schedule(driver, "foreign", "instance")


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
