"""What a stream is played against: a node under some policy, or the same GPUs repacked at will.

Why it exists: free migration has no placement at all, only counts; it is the bound that no policy
without migration reaches, and what a refusal for lack of room is told from.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

from driver.core.errors import ContractError
from driver.core.fragmentation import score
from driver.core.geometry import Offer
from driver.core.minimum import minimum_gpus
from driver.core.occupancy import Partition, Ref, Whole
from driver.core.packing import WHOLE
from driver.core.simulation.node import Node
from driver.core.simulation.policies import Chooser

Seat = Ref | str
"""What a job holds: a device, or where everything can move only its kind."""


class Room(Protocol):
    """`idle`: GPUs that hold nothing."""

    @property
    def idle(self) -> int: ...

    def take(self, kind: str) -> Seat | None:
        """None: refused."""
        ...

    def end(self, seat: Seat) -> None: ...

    def fragmentation(self) -> float: ...


class Minimum:
    """The fewest GPUs for the jobs that run, job by job."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self._kinds = {p.name: n for n, p in enumerate(offer.profiles)}
        self._kinds[WHOLE] = len(self._kinds)
        self._counts = [0] * len(self._kinds)

    def gpus(self, more: str | None = None) -> int:
        """With one `more`. ContractError where the search for this board takes too long."""
        counts = self._counts
        if more is not None:
            counts = counts.copy()
            counts[self._kinds[more]] += 1
        return _fewest(self._offer, tuple(counts))

    def add(self, kind: str) -> None:
        self._counts[self._kinds[kind]] += 1

    def remove(self, kind: str) -> None:
        self._counts[self._kinds[kind]] -= 1


@lru_cache(maxsize=1 << 17)  # every contender asks for the same few thousand
def _fewest(offer: Offer, counts: tuple[int, ...]) -> int:
    """Of each profile, and last of full GPUs."""
    named = {p.name: n for p, n in zip(offer.profiles, counts, strict=False)}
    found = minimum_gpus(offer.geometry, named, whole=counts[-1])
    if found is None:
        raise ContractError(
            f"the fewest GPUs for {named} cannot be found in reasonable time; simulate fewer GPUs"
        )
    return found


class Placed:
    """A job stays where the policy put it."""

    def __init__(self, node: Node, chooser: Chooser) -> None:
        self.node, self._chooser = node, chooser

    @property
    def idle(self) -> int:
        return self.node.idle

    def take(self, kind: str) -> Seat | None:
        ref = self._chooser.choose(kind)
        if ref is not None:
            self.node.take(ref)
            self._chooser.changed()
        return ref

    def end(self, seat: Seat) -> None:
        if isinstance(seat, Partition | Whole):
            self.node.end(seat)
            self._chooser.changed()

    def fragmentation(self) -> float:
        return score(self.node.boards, self.node.live)


class Repacked:
    """Every job may move at any time, so what fits in numbers is taken."""

    def __init__(self, offer: Offer, gpus: int) -> None:
        self._minimum, self._gpus = Minimum(offer), gpus

    @property
    def idle(self) -> int:
        return self._gpus - self._minimum.gpus()

    def take(self, kind: str) -> Seat | None:
        if self._minimum.gpus(kind) > self._gpus:
            return None
        self._minimum.add(kind)
        return kind

    def end(self, seat: Seat) -> None:
        if isinstance(seat, str):
            self._minimum.remove(seat)

    def fragmentation(self) -> float:
        return 0.0
