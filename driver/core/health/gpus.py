"""Which GPUs this node has, kept over restarts and boots.

Why it exists: a GPU that was lost while nobody looked is missed only by somebody who remembers it,
and a line of the kernel's log names an address, which has to mean a GPU also before NVML answers.

A GPU is forgotten when another sits at its address, or when an operator says that it is gone.

Must not know who reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from driver.core.health.items import MISSING, Evidence, Item, KnownGpu
from driver.core.health.signals import Source
from driver.core.ids import GpuUuid

MOST: Final = 64
"""GPUs that are remembered; more only where more are read."""


def found(evidence: Evidence, gpus: Mapping[GpuUuid, KnownGpu]) -> Evidence:
    """These were read now; the same value where it is no news."""
    taken = {each.pci for each in gpus.values()}
    before = evidence.gpus
    kept = [(u, k) for u, k in before.items() if u not in gpus and k.pci not in taken]
    newest = kept[max(0, len(kept) + len(gpus) - MOST) :]
    read = {
        uuid: replace(gpu, serial=gpu.serial or before[uuid].serial) if uuid in before else gpu
        for uuid, gpu in gpus.items()
    }
    after = {**dict(newest), **read}
    if after == before:
        return evidence
    return _without(evidence, after)


def renumbered(evidence: Evidence) -> Evidence:
    """In another boot minor numbers are others."""
    gpus = {uuid: replace(gpu, minor=None) for uuid, gpu in evidence.gpus.items()}
    return replace(evidence, gpus=gpus)


def gone(evidence: Evidence, gpu: GpuUuid) -> bool:
    """Whether, of all that is known of it, it is not on the node any more."""
    return gpu not in evidence.gpus or any(
        _misses(item) for item in evidence.items.values() if item.scope.gpu == gpu
    )


def forgotten(evidence: Evidence, gpu: GpuUuid) -> Evidence:
    """An operator knows that it is not there."""
    if gpu not in evidence.gpus:
        return evidence
    return _without(evidence, {u: k for u, k in evidence.gpus.items() if u != gpu})


def _without(evidence: Evidence, gpus: Mapping[GpuUuid, KnownGpu]) -> Evidence:
    """What is not known any more is not missed either."""
    left = evidence.gpus.keys() - gpus.keys()
    items = {
        key: item
        for key, item in evidence.items.items()
        if not (item.scope.gpu in left and _misses(item))
    }
    return replace(evidence, gpus=gpus, items=items)


def _misses(item: Item) -> bool:
    return item.source is Source.POLL and item.name == MISSING
