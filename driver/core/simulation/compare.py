"""The same jobs under each policy, by name.

The names are what a user types, so they are here once. Must not know where jobs come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from driver.core.geometry import Geometry, Offer, offers
from driver.core.ids import GpuUuid
from driver.core.occupancy import Board
from driver.core.packing import Policy
from driver.core.simulation.jobs import Job, Source
from driver.core.simulation.node import Node
from driver.core.simulation.play import Outcome, play
from driver.core.simulation.policies import AnyGpuFirst, FirstFit, Published, nvidia, static
from driver.core.simulation.rooms import Placed, Repacked, Room


class Contender(StrEnum):
    """`REPACK` moves what runs, at no cost: a bound, not a policy."""

    PACKED = "packed"
    DISTRIBUTED = "distributed"
    STATIC = "static"
    NVIDIA = "nvidia"
    NVIDIA_RANDOM = "nvidia-random"
    REPACK = "repack"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """`gpus` boards of one kind. `lag`: of the orders that follow the state, in node events."""

    offer: Offer
    gpus: int
    lag: int = 0

    def boards(self) -> tuple[Board, ...]:
        return tuple(
            Board(uuid=GpuUuid(f"GPU-{n:08x}"), offer=self.offer) for n in range(self.gpus)
        )


def default_offer(geometry: Geometry) -> Offer:
    """What the driver publishes where no profiles are listed."""
    return offers([geometry])[0]


def room(setup: Setup, contender: Contender, source: Source) -> Room:
    """An empty one. `source` is for the contender that has no order of its own."""
    boards = setup.boards()
    node = Node(boards)
    match contender:
        case Contender.REPACK:
            return Repacked(setup.offer, setup.gpus)
        case Contender.PACKED:
            return Placed(node, Published(node, Policy.PACKED, lag=setup.lag))
        case Contender.DISTRIBUTED:
            return Placed(node, Published(node, Policy.DISTRIBUTED, lag=setup.lag))
        case Contender.STATIC:
            return Placed(node, FirstFit(node, static(boards)))
        case Contender.NVIDIA:
            return Placed(node, FirstFit(node, nvidia(boards)))
        case Contender.NVIDIA_RANDOM:
            return Placed(node, AnyGpuFirst(node, nvidia(boards), source))


def outcome(
    jobs: Sequence[Job],
    setup: Setup,
    contender: Contender,
    source: Source,
    *,
    warmup: int = 0,
    samples: int = 0,
) -> Outcome:
    """Of the same `jobs`, contender by contender."""
    where = room(setup, contender, source)
    return play(jobs, where, setup.offer, setup.gpus, warmup=warmup, samples=samples)
