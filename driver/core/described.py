"""What of a node's slices does not depend on what is in use: `(Inventory, Choices) -> Described`.

Why it exists: an order is renewed after each allocation, and to describe all devices and to check
them against the API's rules costs far more than to order them. It is a value, made of values: who
keeps one saves the work, who makes it again gets the same. Must not know taints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from api.resource.limits import MAX_DEVICES_WITH_COUNTERS_OR_TAINTS, problems
from api.resource.types import CounterSet, Device, Pool, Slice
from driver.core.choices import Choices
from driver.core.counters import Counters
from driver.core.devices import Allocatable, LatePartition, MigPartition, describe
from driver.core.ids import DeviceName, GpuUuid, SliceName
from driver.core.inventory import Inventory, without_counters
from driver.core.late_counters import LateCounters
from driver.core.layout import SlicePlan, lay_out, lay_out_flat
from driver.core.names import pool_name, slice_name
from driver.core.occupancy import NOTHING, Live, Ref
from driver.core.packing import make_order

_STATIC: Final = "static"


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """`devices`: as published, without taints; `refs`: what their names stand for. `flat`: the
    server keeps no counters. `sound`: its slices break no rule of the API, in whatever order.
    """

    inventory: Inventory
    choices: Choices
    driver: str
    node: str
    flat: bool
    devices: Mapping[Ref, Device]
    refs: Mapping[DeviceName, Ref]
    counter_sets: Mapping[GpuUuid, CounterSet]
    names: Mapping[str, SliceName]
    sound: bool

    def pool(self, live: Live = NOTHING) -> Pool:
        """All slices, best device first."""
        return Pool(
            driver=self.driver,
            node=self.node,
            name=pool_name(self.node),
            slices=tuple(self._slice(plan) for plan in _plans(self, live)),
        )

    def _slice(self, plan: SlicePlan) -> Slice:
        return Slice(
            name=self.names[plan.what],
            devices=tuple(self.devices[ref] for ref in plan.devices),
            counter_sets=tuple(self.counter_sets[uuid] for uuid in plan.counter_sets),
        )


def describe_node(
    inventory: Inventory, choices: Choices, *, driver: str, node: str, counters: bool = True
) -> Described:
    """`counters`: whether the server keeps them; without, only what excludes nothing is listed."""
    kept = inventory if counters else without_counters(inventory)
    listed = Described(
        inventory=kept,
        choices=choices,
        driver=driver,
        node=node,
        flat=not counters,
        devices={d.ref: publish(kept, d, choices) for d in kept.devices.values()},
        refs={name: d.ref for name, d in kept.devices.items()},
        counter_sets={
            uuid: found.counter_set(_counter_set(kept, uuid))
            for uuid, found in kept.counters.items()
        },
        names={},
        sound=False,
    )
    # Which slices there are, and what stands in each, is the same whatever is in use.
    named = replace(
        listed,
        names={
            plan.what: slice_name(node, driver, position, plan.what)
            for position, plan in enumerate(_plans(listed, NOTHING))
        },
    )
    return replace(named, sound=not any(problems(named.pool())))


def publish(inventory: Inventory, device: Allocatable, choices: Choices) -> Device:
    """One device with what it takes from its GPU's counters, where its GPU has any."""
    described = describe(device, inventory.driver, full=not choices.lean)
    counters = inventory.counters.get(device.gpu.uuid)
    if counters is None:
        return described
    name = _counter_set(inventory, device.gpu.uuid)
    match device, counters:
        case MigPartition(profile=profile, start=start), Counters():
            consumed = counters.partition(name, profile, start)
        case LatePartition(profile=profile), LateCounters():
            consumed = counters.partition(name, profile)
        case _:
            consumed = counters.whole(name)
    return replace(described, consumes=(consumed,))


def _counter_set(inventory: Inventory, uuid: GpuUuid) -> str:
    """The name of a GPU's counter set: its UUID, which is a DNS label in lower case.

    Sums have a name of their own. What is in use while the binding changes keeps what it consumes,
    and goes on to consume it from the set that has it.
    """
    late = isinstance(inventory.counters.get(uuid), LateCounters)
    return f"{uuid.lower()}-sums" if late else uuid.lower()


def _plans(described: Described, live: Live) -> list[SlicePlan]:
    inventory, policy = described.inventory, described.choices.policy
    if described.flat:
        # Nothing is made on demand there, so nothing packs, and the order never needs to change.
        everything = make_order((*inventory.boards, *inventory.static), NOTHING, policy)
        plans = lay_out_flat(everything, described.devices.keys())
    else:
        order = make_order(inventory.boards, live, policy)
        plans = (*lay_out(inventory.boards, order), *_static(inventory))
    return [part for plan in plans for part in _split(plan)]


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
