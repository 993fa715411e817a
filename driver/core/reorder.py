"""Which order to publish now: the fresh one only where the published one misleads the scheduler.

Why it exists: between the policy's order and a write stands the question whether it is worth one.
The set of devices is not this module's business; `diff.py` writes what comes out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from api.resource.codec import StoredSlice
from api.resource.types import Device, Pool, Slice
from driver.core.choices import Choices
from driver.core.described import Described
from driver.core.ids import DeviceName
from driver.core.inventory import Inventory
from driver.core.layout import SlicePlan, beside, shelves
from driver.core.occupancy import Live, Partition, Whole
from driver.core.packing import WHOLE, make_order
from driver.core.rerank import rerank


def settle(
    fresh: Pool,
    stored: Iterable[StoredSlice],
    described: Described,
    live: Live,
    *,
    behind: int = 0,
) -> Pool:
    """`fresh`, but with the stored order wherever that still leads to the policy's choice.

    `behind` as in `rerank`. A slice whose devices are not those of `fresh` is taken as fresh.
    """
    published = {s.name: s.content.devices for s in stored if s.content is not None}
    stale = _stale(published, described, live, behind)
    return replace(
        fresh,
        slices=tuple(
            s if s.name in stale else _as_published(s, published.get(s.name, ()))
            for s in fresh.slices
        ),
    )


def _stale(
    published: dict[str, tuple[Device, ...]], described: Described, live: Live, behind: int
) -> Collection[str]:
    if described.flat:
        return described.names.values()
    refs, names, boards = described.refs, described.names, described.inventory.boards
    plans = []
    for shelf in shelves(boards):
        devices = published.get(names.get(shelf.what, ""), ())
        there = (refs.get(DeviceName(d.name)) for d in devices)
        plans.append(
            SlicePlan(what=shelf.what, devices=tuple(ref for ref in there if ref is not None))
        )
    wrong = rerank(plans, boards, live, described.choices.policy, behind=behind)
    return {names[plan.what] for plan in wrong if plan.what in names}


def _as_published(wanted: Slice, devices: tuple[Device, ...]) -> Slice:
    """The wanted devices in the published order, where they are the same ones."""
    by_name = {d.name: d for d in wanted.devices}
    if len(devices) != len(by_name) or {d.name for d in devices} != by_name.keys():
        return wanted
    return replace(wanted, devices=tuple(by_name[d.name] for d in devices))


def was_choice(
    inventory: Inventory, live: Live, allocated: Iterable[DeviceName], choices: Choices
) -> tuple[bool, Live]:
    """Whether a claim got what the policy would take in the state before it; the state after it.

    Of partitions: among the GPUs that share slices. A tainted device is the choice of a claim that
    tolerates it, which says nothing of the order.
    """
    chosen = True
    for name in allocated:
        device = inventory.devices.get(name)
        if device is None or device.gpu.uuid not in {b.uuid for b in inventory.boards}:
            continue
        order = make_order(inventory.boards, live, choices.policy)
        match device.ref:
            case Partition() as ref:
                best = order.first(ref.profile, beside(inventory.boards, ref.gpu))
                chosen = chosen and (best == ref or ref in live.tainted)
                live = replace(live, partitions=live.partitions | {ref})
            case Whole() as ref:
                best = order.first(WHOLE, ())
                chosen = chosen and (best == ref or ref in live.tainted)
                live = replace(live, whole=live.whole | {ref.gpu})
    return chosen, live


def without(inventory: Inventory, live: Live, released: Iterable[DeviceName]) -> Live:
    """The state after a claim has given its devices back."""
    devices = (inventory.devices.get(name) for name in released)
    refs = {device.ref for device in devices if device is not None}
    return replace(
        live,
        partitions=live.partitions.difference(r for r in refs if isinstance(r, Partition)),
        whole=live.whole.difference(r.gpu for r in refs if isinstance(r, Whole)),
    )
