"""Nodes of partitionable GPUs, and what is in use on them, for tests to vary."""

from collections.abc import Iterable, Sequence

from driver.core.geometry import Geometry, offers
from driver.core.ids import GpuUuid
from driver.core.occupancy import NOTHING, Board, Live, Partition, Ref, Whole
from driver.core.packing import Order, Policy, make_order
from tests.data.mig_boards import H100


def uuid(number: int) -> GpuUuid:
    return GpuUuid(f"GPU-{number:08x}-0000-4000-8000-{number:012x}")


def node(
    count: int, geometry: Geometry = H100, listed: Sequence[str] | None = None
) -> tuple[Board, ...]:
    """`count` GPUs of one kind."""
    return mixed(*[geometry] * count, listed=listed)


def mixed(*kinds: Geometry | None, listed: Sequence[str] | None = None) -> tuple[Board, ...]:
    """One GPU of each kind; None: not partitionable."""
    found = iter(offers([k for k in kinds if k is not None], listed))
    return tuple(
        Board(uuid=uuid(number), offer=None if kind is None else next(found))
        for number, kind in enumerate(kinds)
    )


def live(
    *taken: str, withheld: dict[int, int] | None = None, tainted: Iterable[str | Ref] = ()
) -> Live:
    """`0:1g.10gb@6` is a partition of GPU 0, `3` the whole GPU 3."""
    refs = [read(text) for text in taken]
    return Live(
        partitions=frozenset(r for r in refs if isinstance(r, Partition)),
        whole=frozenset(r.gpu for r in refs if isinstance(r, Whole)),
        withheld={uuid(gpu): mask for gpu, mask in (withheld or {}).items()},
        tainted=frozenset(read(each) if isinstance(each, str) else each for each in tainted),
    )


def read(text: str) -> Ref:
    gpu, colon, rest = text.partition(":")
    if not colon:
        return Whole(gpu=uuid(int(gpu)))
    profile, _, start = rest.partition("@")
    return Partition(gpu=uuid(int(gpu)), profile=profile, start=int(start))


def all_of(boards: Sequence[Board], number: int) -> list[Ref]:
    """Every device of one GPU."""
    board = boards[number]
    places = [(p.name, s) for p in board.offer.profiles for s in p.starts] if board.offer else []
    partitions = [Partition(gpu=board.uuid, profile=name, start=s) for name, s in places]
    return [Whole(gpu=board.uuid), *partitions]


def spell(refs: Iterable[Ref]) -> list[str]:
    """The reverse, without the profile: `0@6`, `3`."""
    return [
        f"{_number(r.gpu)}@{r.start}" if isinstance(r, Partition) else f"{_number(r.gpu)}"
        for r in refs
    ]


def _number(gpu: GpuUuid) -> int:
    return int(gpu[4:12], 16)


def order(boards: Sequence[Board], state: Live = NOTHING, policy: Policy = Policy.PACKED) -> Order:
    return make_order(boards, state, policy)


def take(state: Live, ref: Ref) -> Live:
    if isinstance(ref, Whole):
        return Live(
            partitions=state.partitions, whole=state.whole | {ref.gpu}, withheld=state.withheld
        )
    return Live(partitions=state.partitions | {ref}, whole=state.whole, withheld=state.withheld)


def follow(
    boards: Sequence[Board],
    wanted: Sequence[str],
    state: Live = NOTHING,
    policy: Policy = Policy.PACKED,
) -> list[str]:
    """Where a sequence of claims goes if the order is written anew after each; `whole`: a GPU."""
    places = []
    for kind in wanted:
        now = make_order(boards, state, policy)
        ranked = now.whole if kind == "whole" else now.profiles[kind]
        places += spell(ranked.feasible[:1]) or ["-"]
        for ref in ranked.feasible[:1]:
            state = take(state, ref)
    return places
