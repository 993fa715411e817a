"""Whether a published order must be replaced, and by what: `(published, true state) -> slices`.

Why it exists: each write costs the API server and wakes every pod that waits for a device, and the
scheduler looks at the first device that fits. So an order is wrong only if, for some profile, its
first feasible device is not the policy's choice. Must not know writes; each slice that comes out is
one object, replaced in place.

Correctness never depends on this: counters are exact in any order. A stale order costs packing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from driver.core.ids import GpuUuid
from driver.core.layout import Shelf, SlicePlan, fill, shelves
from driver.core.occupancy import NOTHING, Board, Live, Ref, State, Whole, can_take, states
from driver.core.packing import WHOLE, Order, Policy, make_order, order_in

MOST_BEHIND: Final = 3
"""Events. Beyond it an order that follows the state is worse than one that ignores it."""


def rerank(
    published: Sequence[SlicePlan],
    boards: Sequence[Board],
    live: Live,
    policy: Policy,
    *,
    behind: int = 0,
) -> tuple[SlicePlan, ...]:
    """The slices to replace, with their new order; nothing where the published order will do.

    `behind`: allocations and releases that are known to have happened and are not in `live` yet.
    `published` has the slices of `lay_out` for the same boards; KeyError where one is missing,
    because a change of the set of devices is another kind of write.
    """
    stand = {plan.what: plan.devices for plan in published}
    if behind > MOST_BEHIND:
        order = make_order(boards, NOTHING, policy)
        plans = [fill(shelf, order) for shelf in shelves(tuple(boards))]
        return tuple(plan for plan in plans if plan.devices != stand[plan.what])
    now = states(boards, live)
    order = order_in(boards, now, policy, live.tainted)
    rooms = {b.uuid: (b, s) for b, s in zip(boards, now, strict=True)}
    return tuple(
        fill(shelf, order)
        for shelf in shelves(tuple(boards))
        if _is_stale(stand[shelf.what], rooms, _choices(shelf, order), live.tainted)
    )


def _choices(shelf: Shelf, order: Order) -> dict[str, Ref]:
    """What the policy takes next of each kind; kinds of which nothing is free are left out."""
    firsts = ((kind, order.first(kind, shelf.gpus)) for kind in shelf.kinds)
    return {kind: ref for kind, ref in firsts if ref is not None}


def _is_stale(
    devices: Sequence[Ref],
    rooms: dict[GpuUuid, tuple[Board, State]],
    choice: dict[str, Ref],
    tainted: frozenset[Ref],
) -> bool:
    """Whether the scheduler, reading `devices`, takes something else of some kind."""
    left = dict(choice)
    for ref in devices:
        if not left:
            return False
        kind = WHOLE if isinstance(ref, Whole) else ref.profile
        wanted = left.get(kind)
        if wanted == ref:
            del left[kind]
        elif wanted is not None and ref not in tainted and can_take(*rooms[ref.gpu], ref):
            return True
    return bool(left)
