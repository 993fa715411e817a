"""How far a policy stays below the optimum, from what its choices lose.

Why it exists: comparing simulated acceptance with the exact optimum needs millions of jobs, because
streams differ more than policies do. But a policy's long-run gain is the optimum minus the mean of
what each of its choices loses in value (the performance difference of a Markov decision process),
and that is small and steady: a few thousand jobs are exact to a tenth of a percent.
"""

from __future__ import annotations

from collections.abc import Iterable

from driver.core.geometry import Offer
from driver.core.occupancy import Partition, Whole
from driver.core.simulation.jobs import Job
from driver.core.simulation.play import play
from driver.core.simulation.rooms import Placed, Room, Seat
from tests.bench.optimum import GPUS, Layout, Optimum


class Judged:
    """A room that adds up what its choices lose, from the job after `warmup` on."""

    def __init__(self, room: Placed, best: Optimum, warmup: int) -> None:
        self._room, self._best, self._warmup = room, best, warmup
        self._layouts: list[Layout] = [frozenset()] * GPUS
        self._jobs, self._lost = 0, 0.0

    @property
    def idle(self) -> int:
        return self._room.idle

    @property
    def ratio(self) -> float:
        """Of the optimum's acceptance."""
        mean = self._lost / (self._jobs - self._warmup)
        return 1 - mean / (self._best.mean_compute * self._best.acceptance)

    def take(self, kind: str) -> Seat | None:
        self._jobs += 1
        seat = self._room.take(kind)
        if seat is not None:
            best = self._best.best(self._layouts, kind)
            place, mask = self._spot(seat)
            self._layouts[place] |= {mask}
            if self._jobs > self._warmup:
                self._lost += best - self._best.value(self._layouts)
        return seat

    def end(self, seat: Seat) -> None:
        place, mask = self._spot(seat)
        self._layouts[place] -= {mask}
        self._room.end(seat)

    def fragmentation(self) -> float:
        return self._room.fragmentation()

    def _spot(self, seat: Seat) -> tuple[int, int]:
        assert isinstance(seat, Partition | Whole)
        spot = self._room.node.spot(seat)
        return spot.place, spot.mask


def ratio(jobs: Iterable[Job], room: Room, offer: Offer, best: Optimum, *, warmup: int) -> float:
    """Compute acceptance as a share of the optimum's."""
    assert isinstance(room, Placed)
    judged = Judged(room, best, warmup)
    play(jobs, judged, offer, GPUS, warmup=warmup)
    return judged.ratio
