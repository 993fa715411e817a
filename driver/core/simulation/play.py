"""A stream of jobs against a room, and what came of it: `(jobs, room) -> Outcome`.

A job that does not fit when it comes is lost; nothing waits, nothing moves. Means are over time,
from the end of the warm-up to the last arrival.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from statistics import fmean

from driver.core.geometry import Offer
from driver.core.simulation.jobs import Job, sizes
from driver.core.simulation.rooms import Minimum, Room, Seat


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Sums over jobs; GPUs as means over time. `avoidable`: refused though a repacking would fit.

    `compute`: slices that were asked for and given; counting jobs alone rewards refusing big ones.
    """

    gpus: int
    offered: int
    accepted: int
    offered_compute: int
    accepted_compute: int
    avoidable: int
    in_use: float
    minimum: float
    fragmentation: float

    @property
    def acceptance(self) -> float:
        return self.accepted / self.offered if self.offered else 1.0

    @property
    def compute_acceptance(self) -> float:
        return self.accepted_compute / self.offered_compute if self.offered_compute else 1.0

    @property
    def excess_gpus(self) -> float:
        """In use above the fewest that could hold the same jobs."""
        return self.in_use - self.minimum

    @property
    def false_refusals(self) -> float:
        """Share of all jobs."""
        return self.avoidable / self.offered if self.offered else 0.0

    @property
    def whole_gpus(self) -> float:
        """Free whole GPUs as a share of what repacking would free; 1: none is lost."""
        free = self.gpus - self.minimum
        return (self.gpus - self.in_use) / free if free else 1.0


def gap_closed(policy: Outcome, base: Outcome, best: Outcome) -> float:
    """Of the compute acceptance between `base` and `best`, the share that `policy` wins."""
    gap = best.compute_acceptance - base.compute_acceptance
    return (policy.compute_acceptance - base.compute_acceptance) / gap if gap else 0.0


class _Means:
    """Means over time of what a room holds, from the last `restart` on."""

    def __init__(self, room: Room, minimum: Minimum, gpus: int) -> None:
        self._room, self._minimum, self._gpus = room, minimum, gpus
        self.restart(0.0)

    def restart(self, at: float) -> None:
        self._since = self._now = at
        self._in_use = self._least = 0.0

    def until(self, at: float) -> None:
        """Call it before anything changes at `at`."""
        span, self._now = at - self._now, at
        self._in_use += span * (self._gpus - self._room.idle)
        self._least += span * self._minimum.gpus()

    def read(self) -> tuple[float, float]:
        """GPUs in use, and the fewest that would do."""
        span = self._now - self._since
        return (self._in_use / span, self._least / span) if span else (0.0, 0.0)


def play(
    jobs: Iterable[Job], room: Room, offer: Offer, gpus: int, *, warmup: int = 0, samples: int = 0
) -> Outcome:
    """The first `warmup` jobs run and are not counted. `samples`: fragmentation is looked at
    before every so manieth job; 0: never, since it costs more than all the rest.
    """
    of, minimum = sizes(offer), Minimum(offer)
    means = _Means(room, minimum, gpus)
    running: list[tuple[float, int, str, Seat]] = []
    offered, taken, avoidable = _Sum(), _Sum(), 0
    scores: list[float] = []
    for number, job in enumerate(jobs):
        while running and running[0][0] <= job.at:
            ends, _, kind, seat = heappop(running)
            means.until(ends)
            room.end(seat)
            minimum.remove(kind)
        means.until(job.at)
        if number in {0, warmup}:
            means.restart(job.at)
        counted = number >= warmup
        if counted and samples and not (number - warmup) % samples:
            scores.append(room.fragmentation())
        compute = of[job.kind].compute
        offered.add(counted, compute)
        held = room.take(job.kind)
        if held is None:
            avoidable += counted and minimum.gpus(job.kind) <= gpus
            continue
        taken.add(counted, compute)
        minimum.add(job.kind)
        heappush(running, (job.at + job.lasts, number, job.kind, held))
    in_use, least = means.read()
    return Outcome(
        gpus=gpus,
        offered=offered.jobs,
        accepted=taken.jobs,
        offered_compute=offered.compute,
        accepted_compute=taken.compute,
        avoidable=avoidable,
        in_use=in_use,
        minimum=least,
        fragmentation=fmean(scores) if scores else 0.0,
    )


@dataclass(slots=True)
class _Sum:
    """Of jobs, and of their compute slices."""

    jobs: int = 0
    compute: int = 0

    def add(self, counted: bool, compute: int) -> None:
        if counted:
            self.jobs += 1
            self.compute += compute
