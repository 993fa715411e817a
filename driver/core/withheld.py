"""Which devices are withheld, and what an order must know of it: `(Inventory, Live, sick) -> Live`.

Why it exists: a device with a taint is free by its counters, but the scheduler passes it over. An
order that counts on it takes the room of a sick GPU for the next claim's, which then opens an idle
one. Must not know why a device is sick, nor what the server can store of it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from driver.core.choices import Choices
from driver.core.expressible import Taints, withholds
from driver.core.inventory import Inventory
from driver.core.live import Foreign, joined, withholding_taints
from driver.core.occupancy import Live


def withhold(
    inventory: Inventory,
    live: Live,
    foreign: Collection[Foreign],
    sick: Taints,
    choices: Choices,
    *,
    driver: str,
) -> tuple[Taints, Live]:
    """All taints by device, and `live` with the devices that claims do not get for them.

    `sick` comes first: a GPU that nobody gets cannot be one that is kept whole.
    """
    fit = _with(inventory, live, sick)
    taints = joined(withholding_taints(inventory, fit, foreign, choices, driver=driver), sick)
    return taints, _with(inventory, live, taints)


def _with(inventory: Inventory, live: Live, taints: Taints) -> Live:
    hard = (name for name, found in taints.items() if any(map(withholds, found)))
    devices = (inventory.devices.get(name) for name in hard)
    return replace(live, tainted=frozenset(d.ref for d in devices if d is not None))
