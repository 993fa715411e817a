"""From what is stored to what is wanted, in as few writes as the contract allows.

The last arrow before the API: `(Pool, stored slices) -> writes`. Must not know JSON or HTTP.

A scheduler ignores a pool from the first write at a new generation to the last one, so the
generation rises only when it must: when the set of slices changes, or more than one slice does. One
slice replaced in place is atomic for every reader, and so is any number of slices whose devices are
only in another order, or have other taints: whichever mixture a reader sees, each device is in it
once, and is what it was. A fault that withholds devices of several slices so never hides the pool.

Source: publishing rules of the reference controller, restated, with two additions: a slice with
another Node UID as its owner is rewritten (the garbage collector would take it), and slices that
are missing or left behind by an interrupted bump are written at the generation of their siblings,
which completes the pool instead of starting another round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from api.resource.codec import NodeOwner, StoredSlice
from api.resource.types import Device, Pool, Slice


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Remove exactly this object (its UID and version are preconditions)."""

    stored: StoredSlice
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """Write `wanted` over `over`, or create it where that is None."""

    wanted: Slice
    generation: int
    over: StoredSlice | None
    reason: str

    @property
    def in_place(self) -> bool:
        """Nothing changes but the order of devices and their taints."""
        return (
            self.over is not None
            and self.over.generation == self.generation
            and _may_mix(self.over, self.wanted)
        )


Write = Delete | Put


def plan_writes(pool: Pool, stored: Iterable[StoredSlice], *, owner: NodeOwner) -> list[Write]:
    """Deletions first (a lost device stops being offered), then replacements, then creations.

    `stored`: all slices of this driver on this node, of any pool. No difference, no write.
    """
    ours: list[StoredSlice] = []
    foreign: list[StoredSlice] = []
    for each in sorted(stored, key=lambda s: s.name):
        (ours if each.pool == pool.name else foreign).append(each)
    wanted = {s.name: s for s in pool.slices}
    current = {s.name: s for s in ours if s.name in wanted}
    newest = max((s.generation for s in ours), default=0)

    changed = {
        name: reason
        for name, s in current.items()
        if (reason := _difference(s, wanted[name], pool=pool, owner=owner))
    }
    behind = {name for name, s in current.items() if s.generation < newest}
    same_set = all(
        s.name in wanted and s.count == len(wanted) for s in ours if s.generation == newest
    )
    content = {
        name for name in changed.keys() - behind if not _may_mix(current[name], wanted[name])
    }
    bump = not ours or not same_set or len(content) > 1
    generation = newest + bump

    writes: list[Write] = [Delete(stored=s, reason="its pool is no longer wanted") for s in foreign]
    writes += [
        Delete(stored=s, reason="not part of the wanted pool") for s in ours if s.name not in wanted
    ]
    writes += [
        Put(
            wanted=wanted[name],
            generation=generation,
            over=current[name],
            reason=changed.get(name, "new generation"),
        )
        for name in sorted(current, key=lambda name: (name in behind, name))
        if bump or name in changed or name in behind
    ]
    writes += [
        Put(wanted=s, generation=generation, over=None, reason="missing")
        for name, s in wanted.items()
        if name not in current
    ]
    return writes


def _difference(stored: StoredSlice, wanted: Slice, *, pool: Pool, owner: NodeOwner) -> str:
    """Why the stored object must be written again; empty where it is as wanted."""
    if stored.content != wanted:
        return "its devices or counters differ"
    if stored.owner != owner:
        return "its owner is another Node object"
    if stored.count != len(pool.slices):
        return "the number of slices differs"
    return ""


def _may_mix(stored: StoredSlice, wanted: Slice) -> bool:
    """A reader may see one beside older ones of the pool: order and taints alone differ."""
    have = stored.content
    return (
        have is not None
        and have.counter_sets == wanted.counter_sets
        and len(have.devices) == len(wanted.devices)
        and _lasting(have.devices) == _lasting(wanted.devices)
    )


def _lasting(devices: Iterable[Device]) -> Mapping[str, object]:
    """What each is, whatever its place and its taints."""
    return {d.name: (d.attributes, d.capacity, d.consumes) for d in devices}
