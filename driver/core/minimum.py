"""The fewest GPUs that can hold a set of partitions, if all were placed anew.

Why it exists: it is the yardstick for every policy ("GPUs in use above the minimum") and tells a
refusal for lack of room from one for fragmentation. Must not know what runs where.

Source of the closed form: on the class with 8 slots a GPU is a left half (one 4g, one 3g, or two
pairs) and a right half (one 3g, or one pair and the tail {6,7} with one 1g or one double-memory
1g); checked by brute force for one, two and three GPUs. Other boards are searched.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from operator import mul
from typing import Final

from driver.core.capacity import table
from driver.core.counters import count_in, slot_sets
from driver.core.geometry import Geometry, Offer

MOST_STATES: Final = 20_000

_SLOTS: Final = 8
_EIGHT: Final = {
    # (size, compute slices, starts): what the closed form was proved for, whatever the board
    (1, 1, (0, 1, 2, 3, 4, 5, 6)): "1g",
    (2, 1, (0, 2, 4, 6)): "double",
    (2, 2, (0, 2, 4)): "2g",
    (4, 3, (0, 4)): "3g",
    (4, 4, (0,)): "4g",
    (8, 7, (0,)): "7g",
}


def minimum_gpus(geometry: Geometry, counts: Mapping[str, int], *, whole: int = 0) -> int | None:
    """For `counts` partitions of each profile and `whole` full GPUs; all boards alike.

    None where the search would take too long, and where some profile fits no GPU.
    """
    wanted = {name: count for name, count in counts.items() if count > 0}
    offer = Offer.of(geometry, (geometry.profile(name) for name in wanted))
    found = _closed_form(offer, wanted)
    if found is None:
        found = _search(offer, tuple(wanted[p.name] for p in offer.profiles))
    return None if found is None else found + whole


def _closed_form(offer: Offer, counts: Mapping[str, int]) -> int | None:
    """None where the board is of another class, or limits more than slots."""
    shapes = [_EIGHT.get((p.size, p.compute_slices, p.starts)) for p in offer.profiles]
    if offer.geometry.slots != _SLOTS or None in shapes or table(offer).totals:
        return None
    n = dict.fromkeys(_EIGHT.values(), 0)
    for shape, profile in zip(shapes, offer.profiles, strict=True):
        if shape is not None:
            n[shape] += counts[profile.name]
    memory = n["1g"] + 2 * n["double"] + 2 * n["2g"] + 4 * n["3g"] + 4 * n["4g"]
    compute = n["1g"] + n["double"] + 2 * n["2g"] + 3 * n["3g"] + 4 * n["4g"]
    pairs = n["2g"] + n["3g"] + 2 * n["4g"]
    return n["7g"] + max(n["4g"], -(-pairs // 3), -(-memory // 8), -(-compute // 7))


@lru_cache(maxsize=1024)
def _search(offer: Offer, counts: tuple[int, ...]) -> int | None:
    bins = _fullest(offer)
    if bins is None or any(all(not b[i] for b in bins) for i in range(len(counts))):
        return None
    sizes = [p.size for p in offer.profiles]
    slots = sum(s * c for s, c in zip(sizes, counts, strict=True))
    gpus, failed = -(-slots // offer.geometry.slots), set[tuple[tuple[int, ...], int]]()
    while not _packs(counts, gpus, bins, failed):
        if len(failed) > MOST_STATES:
            return None
        gpus += 1
    return gpus


def _packs(
    left: tuple[int, ...],
    gpus: int,
    bins: tuple[tuple[int, ...], ...],
    failed: set[tuple[tuple[int, ...], int]],
) -> bool:
    """Whether `left` fits. The largest that is left lies somewhere: try every way to fill a GPU
    around it. `failed` remembers what did not work.
    """
    if not any(left):
        return True
    if not gpus or (left, gpus) in failed or len(failed) > MOST_STATES:
        return False
    largest = max(i for i, count in enumerate(left) if count)
    for filled in bins:
        if filled[largest]:
            rest = tuple(max(0, a - b) for a, b in zip(left, filled, strict=True))
            if _packs(rest, gpus - 1, bins, failed):
                return True
    failed.add((left, gpus))
    return False


@lru_cache(maxsize=64)
def _fullest(offer: Offer) -> tuple[tuple[int, ...], ...] | None:
    """The counts of all sets that fit one GPU and to which nothing can be added."""
    of, kinds = table(offer), range(len(offer.profiles))
    packed = slot_sets(offer.geometry.slots, offer.profiles)
    if packed is None:
        return None
    weights = [moves[0].weights if moves else of.nothing for moves in of.moves]
    sets = set[tuple[int, ...]]()
    for each in packed:
        counts = tuple(count_in(each, i) for i in kinds)
        scaled = ([c * w for w in of_kind] for c, of_kind in zip(counts, weights, strict=True))
        sums = map(sum, zip(*scaled, strict=True))
        if all(s <= t for s, t in zip(sums, of.totals, strict=True)):
            sets.add(counts)
    sizes = [p.size for p in offer.profiles]
    return tuple(
        sorted(
            (s for s in sets if not any(_one_more(s, kind) in sets for kind in kinds)),
            key=lambda s: (sum(map(mul, s, sizes)), s),
            reverse=True,
        )
    )


def _one_more(counts: tuple[int, ...], kind: int) -> tuple[int, ...]:
    return tuple(c + (i == kind) for i, c in enumerate(counts))
