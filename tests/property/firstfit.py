"""The scheduler's search over published slices, restated for one request of one device.

Slices by name, devices in the order listed; a device is taken if nobody has it, the selector
matches and no counter of its counter set would go below zero. Nothing here knows geometry: what it
admits is what the counters admit.

Source: the structured allocator of kubernetes/dynamic-resource-allocation (first fit).
"""

from collections.abc import Sequence

from api.resource.types import Device, Pool, Slice
from driver.core.counters import Counters, find_counters
from driver.core.ids import GpuUuid
from driver.core.layout import SlicePlan
from driver.core.names import gpu_device_names, partition_name, pool_name, slice_name
from driver.core.occupancy import Board, Live, Partition, Ref, Whole

DRIVER, NODE = "gpu.tessera.dev", "node-1"
WHOLE = "gpu"


class Publisher:
    """Plans as the API has them. Every device is built once; a plan only orders them."""

    def __init__(self, boards: Sequence[Board]) -> None:
        self._names = gpu_device_names(b.uuid for b in boards)
        self._counters: dict[GpuUuid, Counters] = {}
        for board in boards:
            if board.offer is not None and board.offer.profiles:
                counters = find_counters(board.offer)
                assert isinstance(counters, Counters)
                self._counters[board.uuid] = counters
        self._built: dict[Ref, Device] = {}

    def pool(self, plans: Sequence[SlicePlan]) -> Pool:
        slices = tuple(self.slice(position, plan) for position, plan in enumerate(plans))
        return Pool(driver=DRIVER, node=NODE, name=pool_name(NODE), slices=slices)

    def slice(self, position: int, plan: SlicePlan) -> Slice:
        return Slice(
            name=slice_name(NODE, DRIVER, position, plan.what),
            devices=tuple(self._device(ref) for ref in plan.devices),
            counter_sets=tuple(
                self._counters[uuid].counter_set(self._names[uuid]) for uuid in plan.counter_sets
            ),
        )

    def _device(self, ref: Ref) -> Device:
        if ref not in self._built:
            self._built[ref] = self._build(ref)
        return self._built[ref]

    def _build(self, ref: Ref) -> Device:
        name, counters = self._names[ref.gpu], self._counters.get(ref.gpu)
        if counters is None:
            return Device(name=name)
        if isinstance(ref, Whole):
            return Device(name=name, consumes=(counters.whole(name),))
        profile = counters.geometry.profile(ref.profile)
        return Device(
            name=partition_name(name, ref.profile, ref.start),
            consumes=(counters.partition(name, profile, ref.start),),
        )


class Scheduler:
    """What is allocated, and what the counters have left. `kind`: a profile's name, or `WHOLE`."""

    def __init__(self, publisher: Publisher, plans: Sequence[SlicePlan]) -> None:
        pool = publisher.pool(plans)
        self._publisher = publisher
        self._left = {c.name: dict(c.counters) for s in pool.slices for c in s.counter_sets}
        assert [s.name for s in pool.slices] == sorted(s.name for s in pool.slices)
        self._slices = {p.what: _by_kind(p, s) for p, s in zip(plans, pool.slices, strict=True)}
        self.allocated: dict[str, tuple[Device, Ref]] = {}

    @property
    def live(self) -> Live:
        refs = [ref for _, ref in self.allocated.values()]
        return Live(
            partitions=frozenset(r for r in refs if isinstance(r, Partition)),
            whole=frozenset(r.gpu for r in refs if isinstance(r, Whole)),
        )

    def replace(self, position: int, plan: SlicePlan) -> None:
        """One slice is written anew."""
        assert plan.what in self._slices
        self._slices[plan.what] = _by_kind(plan, self._publisher.slice(position, plan))

    def allocate(self, kind: str) -> Ref | None:
        for devices in self._slices.values():
            for device, ref in devices.get(kind, ()):
                if device.name not in self.allocated and self._fits(device):
                    self._take(device, 1)
                    self.allocated[device.name] = device, ref
                    return ref
        return None

    def end(self, name: str) -> Ref:
        device, ref = self.allocated.pop(name)
        self._take(device, -1)
        return ref

    def _fits(self, device: Device) -> bool:
        for consumed in device.consumes:
            left = self._left[consumed.counter_set]
            for name, amount in consumed.counters:
                if left[name] < amount:
                    return False
        return True

    def _take(self, device: Device, sign: int) -> None:
        for consumed in device.consumes:
            left = self._left[consumed.counter_set]
            for name, amount in consumed.counters:
                left[name] -= sign * amount


def _by_kind(plan: SlicePlan, each: Slice) -> dict[str, list[tuple[Device, Ref]]]:
    """A class selector names one kind, so the others are passed over at once."""
    found: dict[str, list[tuple[Device, Ref]]] = {}
    for device, ref in zip(each.devices, plan.devices, strict=True):
        kind = ref.profile if isinstance(ref, Partition) else WHOLE
        found.setdefault(kind, []).append((device, ref))
    return found
