"""A GPU as packing sees it, from the devices that are published for it: `devices -> Board`.

Why it exists: the geometry is NVML's to tell, but the slices say all of it that matters for room:
which profiles, where they start, what they take from the counters. The counters are then derived
anew; a GPU for which they come out different is not guessed at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from api.resource.types import CounterSet, Device, TaintEffect, Text
from driver.core.counters import Counters, find_counters, memory_slice
from driver.core.geometry import Geometry, MigProfile, Offer, Placement
from driver.core.ids import GpuUuid
from driver.core.names import profile_label, read_late_name, read_partition_name
from driver.core.occupancy import Board, Partition, Ref, Whole

_SLICE: Final = re.compile(memory_slice(0).replace("0", "([0-9]{1,2})"))
_ENGINES: Final = {
    "copy-engines": "copy_engines",
    "decoders": "decoders",
    "encoders": "encoders",
    "jpeg-engines": "jpeg",
    "ofa-engines": "ofa",
}
_BOARD: Final = "the board"
_CLOSED: Final = {TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One device that could be read. `ref` is None for a partition that an administrator made:
    it excludes nothing, so it is there whatever else runs; and for one whose place is chosen late.
    """

    device: Device
    gpu: GpuUuid
    kind: str
    ref: Ref | None
    slots: int

    @property
    def closed(self) -> bool:
        """Nothing new is scheduled there."""
        return any(t.effect in _CLOSED for t in self.device.taints)


def see(device: Device) -> Seen | None:
    """None for a device of another shape."""
    texts = {name: a.value for name, a in device.attributes if isinstance(a, Text)}
    slots = sum(1 << slot for slot in _slots(n for c in device.consumes for n, _ in c.counters))
    match texts.get("type"):
        case "gpu" if "uuid" in texts:
            gpu = GpuUuid(texts["uuid"])
            return Seen(device=device, gpu=gpu, kind="", ref=Whole(gpu=gpu), slots=slots or 1)
        case "mig" if "profile" in texts and "parentUUID" in texts:
            gpu, profile = GpuUuid(texts["parentUUID"]), texts["profile"]
            name = read_partition_name(device.name)
            if name is None and read_late_name(device.name) is not None:
                return Seen(device=device, gpu=gpu, kind=profile, ref=None, slots=0)
            if name is None or name.label != profile_label(profile):
                return None
            ref = Partition(gpu=gpu, profile=profile, start=name.start) if slots else None
            return Seen(device=device, gpu=gpu, kind=profile, ref=ref, slots=slots)
    return None


def _slots(counters: Iterable[str]) -> set[int]:
    return {int(found[1]) for name in counters if (found := _SLICE.fullmatch(name))}


def board(uuid: GpuUuid, devices: Sequence[Seen], sets: Mapping[str, CounterSet]) -> Board | str:
    """Of the devices of one GPU; or why it cannot be said what the GPU holds.

    A full device that is closed is not offered. Nor are partitions that are all closed beside a
    full device that is open: the GPU is kept whole.
    """
    if any(read_late_name(d.device.name) for d in devices):
        return f"GPU {uuid}: its partitions get their places late; the slices do not say what fits"
    full = any(isinstance(d.ref, Whole) and not d.closed for d in devices)
    partitions = [d for d in devices if isinstance(d.ref, Partition)]
    if not partitions or (full and all(d.closed for d in partitions)):
        return Board(uuid=uuid, full=full)
    named = {c.counter_set for d in partitions for c in d.device.consumes}
    published = sets.get(next(iter(named))) if len(named) == 1 else None
    if published is None:
        return f"GPU {uuid}: its partitions have no common counter set in the slices"
    slots = _slots(name for name, _ in published.counters)
    if slots != {*range(len(slots))} or any(d.slots >> len(slots) for d in partitions):
        return f"GPU {uuid}: its partitions lie on slots that its counter set does not have"
    geometry = _geometry(partitions, len(slots), dict(published.counters))
    offer = Offer.of(geometry, geometry.profiles[1:])
    found = find_counters(offer)
    if not isinstance(found, Counters) or found.counter_set(published.name) != published:
        return f"GPU {uuid}: its counters are not those that this version derives; use its own"
    return Board(uuid=uuid, offer=offer, full=full)


def _geometry(partitions: Sequence[Seen], slots: int, totals: Mapping[str, int]) -> Geometry:
    """The board as a whole first, then what is published."""
    by_profile: dict[str, list[Seen]] = {}
    for each in sorted(partitions, key=lambda d: d.device.name):
        by_profile.setdefault(each.kind, []).append(each)
    published = tuple(
        _profile(number, name, of, totals)
        for number, (name, of) in enumerate(sorted(by_profile.items()), start=1)
    )
    return Geometry(slots=slots, profiles=(_whole(slots, totals, published), *published))


def _whole(slots: int, totals: Mapping[str, int], published: Sequence[MigProfile]) -> MigProfile:
    """What the board has, whatever is published of it: without this, limits would be derived from
    too few profiles. Compute slices that limit nothing are as many as partitions can have.
    """
    return MigProfile(
        index=0,
        id=0,
        name=_BOARD,
        compute_slices=totals.get("compute-slices", _most_compute(slots, published)),
        memory_mib=0,
        max_instances=1,
        placements=(Placement(start=0, size=slots),),
        **{field: totals.get(n, 0) for n, field in _ENGINES.items()},
    )


def _most_compute(slots: int, published: Sequence[MigProfile]) -> int:
    """Of all sets of partitions that do not overlap."""
    most = [0] * (slots + 1)
    for slot in reversed(range(slots)):
        here = (
            profile.compute_slices + most[slot + place.size]
            for profile in published
            for place in profile.placements
            if place.start == slot
        )
        most[slot] = max((most[slot + 1], *here))
    return most[0]


def _profile(
    number: int, name: str, devices: Sequence[Seen], totals: Mapping[str, int]
) -> MigProfile:
    takes = {n: amount for c in devices[0].device.consumes for n, amount in c.counters}
    limits = {n: amount for n, amount in takes.items() if not _SLICE.fullmatch(n) and amount}
    places = [
        Placement(start=d.ref.start, size=d.slots.bit_count())
        for d in devices
        if isinstance(d.ref, Partition)
    ]
    places.sort()
    own = (totals[n] // amount for n, amount in limits.items() if n in totals)
    return MigProfile(
        index=number,
        id=number,
        name=name,
        compute_slices=int(profile_label(name).partition("g")[0]),
        memory_mib=0,
        max_instances=min((_side_by_side(places), *own)),
        placements=tuple(places),
        **{field: limits.get(n, 0) for n, field in _ENGINES.items()},
    )


def _side_by_side(places: Sequence[Placement]) -> int:
    count = free = 0
    for place in places:
        if place.start >= free:
            count, free = count + 1, place.start + place.size
    return count
