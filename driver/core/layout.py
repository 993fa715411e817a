"""Which device goes into which slice: `(boards, Order) -> slices`.

Why it exists: the order inside one slice holds in every Kubernetes version, and one slice is
replaced in one atomic write; so a profile lives wholly in one slice (for each group of GPUs). Which
slice a device is in depends on the hardware and the configuration alone, never on what is in use: a
device that moved between two slices would be there twice, or not at all, for a moment.

The smallest profile comes first, so that "any partition" takes the smallest. Then the larger ones
and the full GPUs share a slice, interleaved by rank, so that the best candidate of each stands near
the front: a claim for a size in between has to say how large it may be. Then the smallest compute
with more memory, then variants. Source of the arrangement: scheduler CPU per pod, measured for six
layouts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, zip_longest
from typing import Final, TypeVar

from api.resource.limits import MAX_COUNTER_SETS, MAX_DEVICES_WITH_COUNTERS_OR_TAINTS
from driver.core.geometry import Geometry, MigProfile
from driver.core.ids import GpuUuid
from driver.core.occupancy import Board, Ref
from driver.core.packing import WHOLE, Order, Ranked

T = TypeVar("T")
MOST: Final = MAX_DEVICES_WITH_COUNTERS_OR_TAINTS
_CLASSES: Final = ("small", "large", "double", "variants")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicePlan:
    """One slice. Its place in the sequence and `what` make its name: `<NN>-<what>`.

    Either `devices`, in the order in which they are offered, or `counter_sets`, one for each GPU.
    """

    what: str
    devices: tuple[Ref, ...] = ()
    counter_sets: tuple[GpuUuid, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """What belongs into one device slice: all partitions of `kinds` on `gpus`, and, if `WHOLE` is
    among the kinds, the full GPUs of the whole node.
    """

    what: str
    kinds: tuple[str, ...]
    gpus: frozenset[GpuUuid]


def lay_out(boards: Sequence[Board], order: Order) -> tuple[SlicePlan, ...]:
    """Counter slices, then device slices, in the order in which the scheduler visits them."""
    groups = _groups(tuple(boards))
    counters = _numbered([("counters", tuple(b.uuid for b in group)) for group in groups])
    plans = [SlicePlan(what=what, counter_sets=sets) for what, sets in counters]
    return (*plans, *(fill(shelf, order) for shelf in shelves(tuple(boards))))


def fill(shelf: Shelf, order: Order) -> SlicePlan:
    """The devices of one slice: best first, interleaved by rank; the infeasible behind them all."""
    ranked = [restrict(shelf, kind, order) for kind in shelf.kinds]
    return SlicePlan(
        what=shelf.what,
        devices=(
            *_interleave([r.feasible for r in ranked]),
            *_interleave([r.blocked for r in ranked]),
        ),
    )


def restrict(shelf: Shelf, kind: str, order: Order) -> Ranked[Ref]:
    """The part of one kind's order that stands on this shelf."""
    ranked = order.ranked(kind)
    if kind == WHOLE:
        return ranked
    return Ranked(
        feasible=tuple(r for r in ranked.feasible if r.gpu in shelf.gpus),
        blocked=tuple(r for r in ranked.blocked if r.gpu in shelf.gpus),
    )


def lay_out_flat(order: Order, devices: Collection[Ref]) -> tuple[SlicePlan, ...]:
    """For clusters without counters: full GPUs and partitions that an administrator made.

    One slice, as long as they fit, because no version before 1.36 keeps the order of slices; the
    smallest profile first. `devices`: those that exist.
    """
    kinds = [(*k.feasible, *k.blocked) for k in order.kinds()]
    present = [tuple(r for r in refs if r in devices) for refs in kinds]
    slices = _next_fit([(len(refs), refs) for refs in present if refs]) or [[()]]
    named = _numbered([("devices", tuple(chain.from_iterable(part))) for part in slices])
    return tuple(SlicePlan(what=what, devices=refs) for what, refs in named)


def beside(boards: tuple[Board, ...], gpu: GpuUuid) -> frozenset[GpuUuid]:
    """The GPUs whose partitions share slices with those of `gpu`, and are ordered with them."""
    return next((shelf.gpus for shelf in shelves(boards) if gpu in shelf.gpus), frozenset())


@lru_cache(maxsize=64)
def shelves(boards: tuple[Board, ...]) -> tuple[Shelf, ...]:
    """The device slices of the node. A node without a device has one, which is empty."""
    groups = _groups(boards)
    if not groups:
        return (Shelf(what="gpus", kinds=(WHOLE,), gpus=frozenset()),)
    found: list[tuple[str, tuple[tuple[str, ...], frozenset[GpuUuid]]]] = []
    for rank, what in enumerate(_CLASSES):
        for number, group in enumerate(groups):
            kinds = _kinds(group, rank)
            if what == "large" and number == 0:
                # First, so that they share with whatever has room; in the slice they come last.
                kinds = [(sum(b.full for b in boards), WHOLE), *kinds]
            for part in _next_fit(kinds):
                ordered = (*(k for k in part if k != WHOLE), *(k for k in part if k == WHOLE))
                found.append((what, (ordered, frozenset(b.uuid for b in group))))
    return tuple(
        Shelf(what=what, kinds=kinds, gpus=gpus) for what, (kinds, gpus) in _numbered(found)
    )


def _groups(boards: tuple[Board, ...]) -> list[tuple[Board, ...]]:
    """Boards that offer partitions, at most 8 together, fewer where a profile has many starts."""
    having = [b for b in boards if b.partitions()]
    starts = [len(p.placements) for b in having if b.offer for p in b.offer.profiles]
    size = min(MAX_COUNTER_SETS, MOST // max(starts, default=1))
    return [tuple(having[i : i + size]) for i in range(0, len(having), size)]


def _kinds(group: Sequence[Board], rank: int) -> list[tuple[int, str]]:
    """(devices, profile) of every profile of this class in the group, smallest first."""
    ranks: dict[str, int] = {}
    counts: dict[str, int] = {}
    shapes: dict[str, tuple[int, int, int]] = {}
    for offer in (b.offer for b in group if b.offer is not None):
        for p in offer.profiles:
            own = _rank(p, offer.geometry)
            ranks[p.name] = min(ranks.get(p.name, own), own)
            shapes.setdefault(p.name, (p.size, p.compute_slices, p.index))
            counts[p.name] = counts.get(p.name, 0) + len(p.placements)
    chosen = sorted((n for n in counts if ranks[n] == rank), key=lambda n: (shapes[n], n))
    return [(counts[n], n) for n in chosen]


def _rank(profile: MigProfile, geometry: Geometry) -> int:
    """The place of its class in `_CLASSES`."""
    if profile.is_variant:
        return 3
    if profile.size == min(p.size for p in geometry.base if p.size):
        return 0
    return 2 if profile.compute_slices == min(p.compute_slices for p in geometry.base) else 1


def _next_fit(items: Iterable[tuple[int, T]]) -> list[list[T]]:
    """Into as few slices as possible without changing the sequence or cutting an item."""
    slices: list[list[T]] = []
    room = 0
    for count, item in items:
        if count > room or not slices:
            slices.append([])
            room = MOST
        slices[-1].append(item)
        room -= count
    return slices


def _numbered(found: Iterable[tuple[str, T]]) -> list[tuple[str, T]]:
    """`what` alone where it occurs once, else `what-1`, `what-2` and so on."""
    pairs = list(found)
    total = Counter(what for what, _ in pairs)
    seen = Counter[str]()
    named = []
    for what, item in pairs:
        seen[what] += 1
        named.append((f"{what}-{seen[what]}" if total[what] > 1 else what, item))
    return named


def _interleave(lists: Iterable[Iterable[Ref]]) -> Iterator[Ref]:
    for rank in zip_longest(*lists):
        yield from (ref for ref in rank if ref is not None)
