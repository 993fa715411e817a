"""The slices in which this node's devices are offered: `(Inventory, Live) -> Pool`.

The scheduler takes the first device that fits, in the order published; `packing.py` says which
order, `layout.py` in which slices, and this module makes published devices of both. Same input,
same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from api.resource.limits import (
    MAX_COUNTER_SETS,
    MAX_DEVICES_WITH_COUNTERS_OR_TAINTS,
    problems,
)
from api.resource.types import CounterSet, Device, Pool, Slice, Taint
from driver.core.choices import DEFAULT, Choices
from driver.core.counters import Counters
from driver.core.devices import Allocatable, LatePartition, MigPartition, describe
from driver.core.errors import ContractError
from driver.core.ids import DeviceName, GpuUuid, SliceName
from driver.core.inventory import Inventory
from driver.core.late_counters import LateCounters
from driver.core.layout import SlicePlan, lay_out
from driver.core.names import pool_name, slice_name
from driver.core.occupancy import NOTHING, Live
from driver.core.packing import make_order

_STATIC: Final = "static"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A device in use that is no longer found: where it stands now, and what it consumes from.

    An allocated device never disappears: the scheduler would take what it consumes for free.
    """

    slice: SliceName
    position: int
    device: Device
    counters: tuple[tuple[SliceName, CounterSet], ...] = ()


def build_pool(
    inventory: Inventory,
    *,
    driver: str,
    node: str,
    live: Live = NOTHING,
    choices: Choices = DEFAULT,
    kept: Iterable[Kept] = (),
    taints: Mapping[DeviceName, tuple[Taint, ...]] | None = None,
) -> Pool:
    """All slices of this node. ContractError names each rule that the result would break."""
    order = make_order(inventory.boards, live, choices.policy)
    laid_out = (*lay_out(inventory.boards, order), *_static(inventory))
    plans = [part for plan in laid_out for part in _split(plan)]
    names = inventory.named()
    slices = []
    for position, plan in enumerate(plans):
        devices = [inventory.devices[names[ref]] for ref in plan.devices]
        slices.append(
            Slice(
                name=slice_name(node, driver, position, plan.what),
                devices=tuple(
                    publish(inventory, d, choices, (taints or {}).get(d.name, ())) for d in devices
                ),
                counter_sets=tuple(
                    inventory.counters[uuid].counter_set(_counter_set(inventory, uuid))
                    for uuid in plan.counter_sets
                ),
            )
        )
    pool = Pool(driver=driver, node=node, name=pool_name(node), slices=_with_kept(slices, [*kept]))
    if broken := list(problems(pool)):
        raise ContractError(
            f"pool {pool.name} is not published, it would break the API: " + "; ".join(broken)
        )
    return pool


def publish(
    inventory: Inventory, device: Allocatable, choices: Choices, taints: tuple[Taint, ...] = ()
) -> Device:
    """One device with what it takes from its GPU's counters, where its GPU has any."""
    described = describe(device, inventory.driver, full=not choices.lean)
    counters = inventory.counters.get(device.gpu.uuid)
    if counters is None:
        return replace(described, taints=taints)
    name = _counter_set(inventory, device.gpu.uuid)
    match device, counters:
        case MigPartition(profile=profile, start=start), Counters():
            consumed = counters.partition(name, profile, start)
        case LatePartition(profile=profile), LateCounters():
            consumed = counters.partition(name, profile)
        case _:
            consumed = counters.whole(name)
    return replace(described, consumes=(consumed,), taints=taints)


def _counter_set(inventory: Inventory, uuid: GpuUuid) -> str:
    """The name of a GPU's counter set: its UUID, which is a DNS label in lower case.

    Sums have a name of their own. What is in use while the binding changes keeps what it consumes,
    and goes on to consume it from the set that has it.
    """
    late = isinstance(inventory.counters.get(uuid), LateCounters)
    return f"{uuid.lower()}-sums" if late else uuid.lower()


def _static(inventory: Inventory) -> list[SlicePlan]:
    """Partitions that an administrator made, smallest first; they exclude nothing."""
    found = [
        d
        for d in inventory.devices.values()
        if isinstance(d, MigPartition) and d.existing is not None
    ]
    found.sort(key=lambda d: (d.profile.size, d.profile.name, d.gpu.pci, d.start))
    return [SlicePlan(what=_STATIC, devices=tuple(d.ref for d in found))] if found else []


def _split(plan: SlicePlan) -> list[SlicePlan]:
    """At most 64 devices a slice, even without taints: the first taint must not need a new layout.

    Only what excludes nothing can be so many: partitions that share counters are laid out to fit.
    """
    most = MAX_DEVICES_WITH_COUNTERS_OR_TAINTS
    if len(plan.devices) <= most:
        return [plan]
    return [
        SlicePlan(what=f"{plan.what}-{number}", devices=plan.devices[start : start + most])
        for number, start in enumerate(range(0, len(plan.devices), most), 1)
    ]


def _with_kept(slices: Sequence[Slice], kept: list[Kept]) -> tuple[Slice, ...]:
    """Lost devices where they stood, so that as little as possible is written."""
    found = {d.name for s in slices for d in s.devices}
    by_name = {s.name: s for s in slices}
    for each in sorted(kept, key=lambda k: (k.slice, k.position)):
        if each.device.name in found:
            continue
        found.add(each.device.name)
        own = by_name.get(each.slice, Slice(name=each.slice))
        if len(own.devices) >= MAX_DEVICES_WITH_COUNTERS_OR_TAINTS:
            # Others have taken its place meanwhile.
            name = SliceName(f"{each.slice}-kept")
            own = by_name.get(name, Slice(name=name))
        devices = [*own.devices]
        devices.insert(each.position, each.device)
        by_name[own.name] = replace(own, devices=tuple(devices))
        for where, counters in each.counters:
            if counters.name in {c.name for s in by_name.values() for c in s.counter_sets}:
                continue
            home = by_name.get(where, Slice(name=where))
            if len(home.counter_sets) >= MAX_COUNTER_SETS:
                name = SliceName(f"{where}-kept")
                home = by_name.get(name, Slice(name=name))
            by_name[home.name] = replace(home, counter_sets=(*home.counter_sets, counters))
    return tuple(by_name[name] for name in sorted(by_name))
