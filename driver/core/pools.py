"""The slices in which this node's devices are offered: `(Inventory, Live) -> Pool`.

The scheduler takes the first device that fits, in the order published; `packing.py` says which
order, `layout.py` in which slices, `described.py` what stands there, and this module adds what is
true for the moment: taints, and devices that are gone but in use. Same input, same bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from api.resource.codec import StoredSlice
from api.resource.limits import (
    MAX_COUNTER_SETS,
    MAX_DEVICES_WITH_COUNTERS_OR_TAINTS,
    problems,
    taint_problems,
)
from api.resource.types import CounterSet, Device, Pool, Slice, Taint
from driver.core.choices import DEFAULT, Choices
from driver.core.described import Described, describe_node
from driver.core.errors import ContractError
from driver.core.ids import DeviceName, SliceName
from driver.core.inventory import Inventory
from driver.core.occupancy import NOTHING, Live


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
    described = describe_node(inventory, choices, driver=driver, node=node)
    return offer(described, live=live, kept=kept, taints=taints)


def offer(
    described: Described,
    *,
    live: Live = NOTHING,
    kept: Iterable[Kept] = (),
    taints: Mapping[DeviceName, tuple[Taint, ...]] | None = None,
    left_out: Collection[DeviceName] = (),
) -> Pool:
    """`build_pool` of a node that is described already, without the devices `left_out`."""
    pool = described.pool(live)
    if left_out:
        pool = replace(pool, slices=tuple(_without(s, left_out) for s in pool.slices))
    lost = [k for k in kept if k.device.name not in described.refs]
    if described.sound and not lost and not taints:
        return pool
    tainted = [_with_taints(s, taints or {}) for s in pool.slices]
    pool = replace(pool, slices=_with_kept(tainted, lost))
    rules = taint_problems if described.sound and not lost else problems
    if broken := list(rules(pool)):
        raise ContractError(
            f"pool {pool.name} is not published, it would break the API: " + "; ".join(broken)
        )
    return pool


def kept_devices(
    stored: Collection[StoredSlice], *, in_use: Collection[DeviceName]
) -> tuple[Kept, ...]:
    """What is published now and held by a claim; it must not vanish with its GPU."""
    counters = {
        c.name: (SliceName(s.name), c)
        for s in stored
        if s.content is not None
        for c in s.content.counter_sets
    }
    return tuple(
        Kept(
            slice=SliceName(each.name),
            position=position,
            device=device,
            counters=tuple(
                counters[c.counter_set] for c in device.consumes if c.counter_set in counters
            ),
        )
        for each in stored
        if each.content is not None
        for position, device in enumerate(each.content.devices)
        if device.name in in_use
    )


def _without(each: Slice, left_out: Collection[DeviceName]) -> Slice:
    return replace(each, devices=tuple(d for d in each.devices if d.name not in left_out))


def _with_taints(each: Slice, taints: Mapping[DeviceName, tuple[Taint, ...]]) -> Slice:
    return replace(
        each,
        devices=tuple(
            replace(d, taints=taints[name]) if (name := DeviceName(d.name)) in taints else d
            for d in each.devices
        ),
    )


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
            home = _with_counters(by_name, where, counters, each.device)
            by_name[home.name] = home
    return tuple(by_name[name] for name in sorted(by_name))


def _with_counters(
    slices: Mapping[str, Slice], where: SliceName, stored: CounterSet, device: Device
) -> Slice:
    """The slice that holds what `device` consumes of `stored`, once it does.

    Its GPU may be there and have a set of that name, made for other profiles: counters say no more
    than those need, so it is given what it lacks.
    """
    for each in slices.values():
        for place, found in enumerate(each.counter_sets):
            if found.name == stored.name:
                sets = [*each.counter_sets]
                sets[place] = _with_missing(found, stored, device)
                return replace(each, counter_sets=tuple(sets))
    home = slices.get(where, Slice(name=where))
    if len(home.counter_sets) >= MAX_COUNTER_SETS:
        name = SliceName(f"{where}-kept")
        home = slices.get(name, Slice(name=name))
    return replace(home, counter_sets=(*home.counter_sets, stored))


def _with_missing(found: CounterSet, stored: CounterSet, device: Device) -> CounterSet:
    counters, totals = dict(found.counters), dict(stored.counters)
    for each in device.consumes:
        for name, amount in each.counters if each.counter_set == found.name else ():
            if counters.get(name, -1) < amount:
                counters[name] = totals.get(name, amount)
    return replace(found, counters=tuple(counters.items()))
