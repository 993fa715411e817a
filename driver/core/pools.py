"""The order and the slices in which devices are offered: `Inventory -> Pool`.

The scheduler takes the first device that fits, in this order; so the order is the packing policy.
Whole GPUs are offered from the last one down, so that partitions, which will be offered from the
first one up, meet them as late as possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from api.resource.limits import MAX_DEVICES_WITH_COUNTERS_OR_TAINTS, problems
from api.resource.types import Device, Pool, Slice, Text
from driver.core.errors import ContractError
from driver.core.inventory import PCI_BUS_ID, Inventory, describe
from driver.core.names import pool_name, slice_name

_GPUS: Final = "gpus"


def build_pool(
    inventory: Inventory, *, driver: str, node: str, kept: Iterable[Device] = ()
) -> Pool:
    """All slices of this node. ContractError names each rule that the result would break.

    `kept`: devices that are in use but no longer found. An allocated device never disappears: the
    scheduler would take what it consumes for free. One that is given twice is published once.
    """
    devices = {d.name: d for d in kept}
    devices.update((d.name, describe(d, inventory.driver)) for d in inventory.devices.values())
    # By address also those that are lost: they keep their place, so that nothing is written.
    last_first = sorted(devices.values(), key=_place, reverse=True)
    slices = tuple(
        Slice(name=slice_name(node, driver, position, _GPUS), devices=tuple(part))
        for position, part in enumerate(_split(last_first))
    )
    pool = Pool(driver=driver, node=node, name=pool_name(node), slices=slices)
    if broken := list(problems(pool)):
        raise ContractError(
            f"pool {pool.name} is not published, it would break the API: " + "; ".join(broken)
        )
    return pool


def _place(device: Device) -> tuple[str, str]:
    """The PCI address that it is published with, and its name where there is none."""
    address = dict(device.attributes).get(PCI_BUS_ID)
    return (address.value if isinstance(address, Text) else "", device.name)


def _split(devices: Sequence[Device]) -> list[Sequence[Device]]:
    """At most 64 a slice, even without taints: the first taint must not need a new layout.

    A pool without devices has one empty slice, which says "alive, nothing here".
    """
    most = MAX_DEVICES_WITH_COUNTERS_OR_TAINTS
    return [devices[i : i + most] for i in range(0, len(devices), most)] or [()]
