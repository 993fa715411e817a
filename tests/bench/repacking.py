"""What free migration accepts on a few GPUs, exactly.

Why it exists: it is the level without any fragmentation, shown beside the policies. A job is taken
if the counts can be packed, and counts that can be packed stay so when a job ends; such a loss
network has a stationary distribution in product form, whatever moves inside (F. P. Kelly, Loss
networks, 1991).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import factorial, prod

from driver.core.geometry import Offer
from driver.core.simulation.jobs import rate, sizes
from driver.core.simulation.rooms import Minimum

Counts = tuple[int, ...]


def acceptance(offer: Offer, mix: Mapping[str, float], load: float, gpus: int) -> float:
    """By compute."""
    kinds, of, total = tuple(mix), sizes(offer), sum(mix.values())
    arrivals = rate(offer, gpus, mix, load)
    rates = [arrivals * mix[kind] / total for kind in kinds]
    offered = [r * of[kind].compute for r, kind in zip(rates, kinds, strict=True)]
    weights = {
        counts: prod(r**n / factorial(n) for r, n in zip(rates, counts, strict=True))
        for counts in _packable(offer, kinds, gpus)
    }
    everything = sum(weights.values())
    taken = sum(
        weight * asked
        for counts, weight in weights.items()
        for kind, asked in enumerate(offered)
        if _more(counts, kind) in weights
    )
    return taken / (everything * sum(offered))


def _packable(offer: Offer, kinds: tuple[str, ...], gpus: int) -> set[Counts]:
    found = {(0,) * len(kinds)}
    front = list(found)
    while front:
        counts = front.pop()
        for kind in range(len(kinds)):
            more = _more(counts, kind)
            if more not in found and _fits(offer, kinds, more, gpus):
                found.add(more)
                front.append(more)
    return found


def _fits(offer: Offer, kinds: tuple[str, ...], counts: Counts, gpus: int) -> bool:
    minimum = Minimum(offer)
    for kind, count in zip(kinds, counts, strict=True):
        for _ in range(count):
            minimum.add(kind)
    return minimum.gpus() <= gpus


def _more(counts: Counts, kind: int) -> Counts:
    return tuple(n + (i == kind) for i, n in enumerate(counts))
