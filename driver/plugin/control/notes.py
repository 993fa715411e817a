"""Why nobody gets a healthy GPU or device: what is no matter of health.

Why it exists: a device that is published with a taint of ours is healthy, and nobody who asks why
no pod gets it should have to read a ResourceSlice. Must not know how it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

from api.resource.types import Taint
from driver.core.boards import kept_taint
from driver.core.devices import EVERY_SLOT
from driver.core.ids import DeviceName, GpuUuid
from driver.core.live import foreign_taint
from driver.plugin.control.facts import Facts


def notes(facts: Facts, gpu: GpuUuid, device: DeviceName | None = None) -> Iterator[str]:
    """Of one device, or of all devices of the GPU."""
    inventory = facts.inventory
    if inventory is None:
        return
    mode = inventory.modes.get(gpu)
    if mode is not None and mode.withheld_reason:
        yield f"not given out: {mode.withheld_reason}"
    if refused := inventory.refused.get(gpu):
        yield refused
    yield from _occupied(facts, gpu, device)
    if _tainted(facts, gpu, device, kept := kept_taint(facts.identity.driver)):
        yield (
            "kept whole (min_whole_gpus): its partitions go only to claims that tolerate the taint"
            f" {kept.key}"
        )


def _occupied(facts: Facts, gpu: GpuUuid, device: DeviceName | None) -> Iterator[str]:
    """By what is not ours, or not offered any more."""
    found = facts.inventory.devices.get(device) if facts.inventory and device else None
    slots = EVERY_SLOT if device is None else found.slots if found else 0
    others = [f for f in facts.foreign if f.gpu == gpu and f.slots & slots]
    for each in others:
        yield (
            f"not given out: GPU instance {each.instance} lies there, which no claim of this node"
            " explains; whoever made it must destroy it (`nvidia-smi mig -lgi` shows it)"
        )
    if not others and _tainted(facts, gpu, device, foreign_taint(facts.identity.driver)):
        yield (
            "not given out: a claim has a device there that is not offered any more, until that"
            " claim has ended"
        )


def _tainted(facts: Facts, gpu: GpuUuid, device: DeviceName | None, taint: Taint) -> bool:
    devices = facts.inventory.devices if facts.inventory else {}
    return any(
        taint in taints
        for name, taints in facts.taints.items()
        if name in devices and devices[name].gpu.uuid == gpu and device in {None, name}
    )
