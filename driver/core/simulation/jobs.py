"""Streams of jobs: who asks for what, when and for how long.

Why it exists: policies are compared on the same arrivals, so a stream is made first and played
several times. Must not know placement. Randomness comes in as a `Source`; the core has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from math import log
from typing import NamedTuple, Protocol

from driver.core.geometry import Offer
from driver.core.packing import WHOLE


class Source(Protocol):
    """Uniform numbers, as `random.Random` has them."""

    def random(self) -> float:
        """At least 0, less than 1."""
        ...


class Job(NamedTuple):
    """`kind`: a profile's name or `WHOLE`. Times in mean durations, or in what a recording has."""

    at: float
    kind: str
    lasts: float
    name: str = ""


class Size(NamedTuple):
    """What one job of a kind takes of a GPU."""

    slots: int
    compute: int


def sizes(offer: Offer) -> dict[str, Size]:
    """Of every kind that a node of such boards offers."""
    of = {p.name: Size(p.size, p.compute_slices) for p in offer.profiles}
    of[WHOLE] = Size(offer.geometry.slots, offer.geometry.compute_slices)
    return of


def rate(offer: Offer, gpus: int, mix: Mapping[str, float], load: float) -> float:
    """Arrivals in one mean duration, so that `load` = slots asked for / slots there are."""
    of, total = sizes(offer), sum(mix.values())
    mean = sum(weight * of[kind].slots for kind, weight in mix.items()) / total
    return load * gpus * offer.geometry.slots / mean


def poisson(
    mix: Mapping[str, float], per_duration: float, count: int, source: Source
) -> Iterator[Job]:
    """`count` jobs: exponential gaps, kinds by weight, exponential durations with mean 1."""
    kinds, bounds = tuple(mix), tuple(accumulate(mix.values()))
    now = 0.0
    for _ in range(count):
        now -= log(1 - source.random()) / per_duration
        drawn = source.random() * bounds[-1]
        place = next(i for i, bound in enumerate(bounds) if drawn < bound)
        yield Job(now, kinds[place], -log(1 - source.random()))
