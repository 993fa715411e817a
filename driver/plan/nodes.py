"""What runs where, node by node: `Dump -> nodes`.

A pool is a node; of a pool only the newest generation counts, as for the scheduler. Devices with a
taint that keeps pods away are withheld.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from api.resource.claim import ResourceClaim
from api.resource.codec import StoredSlice
from api.resource.types import Device, Text
from driver.core.devices import PCI_BUS_ID
from driver.core.ids import ClaimUID, GpuUuid
from driver.core.occupancy import Board, Live, Partition, Ref, Whole
from driver.core.packing import WHOLE
from driver.core.release import Claims
from driver.plan.boards import Seen, board, see
from driver.plan.dumps import Dump


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """A partition that an administrator made: it is free, or `claims` hold it."""

    name: str
    profile: str
    claims: frozenset[ClaimUID]
    closed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """`names`: of each device. `problems`: what could not be read, and is left out."""

    node: str
    boards: tuple[Board, ...]
    live: Live
    claims: Claims
    names: Mapping[Ref, str]
    fixed: tuple[Fixed, ...]
    problems: tuple[str, ...]

    def kinds(self) -> list[str]:
        """What can be wanted here, smallest first."""
        offered = [p for b in self.boards if b.offer for p in b.offer.profiles]
        ordered = sorted(offered, key=lambda p: (p.size, p.compute_slices))
        return [
            *dict.fromkeys([*(p.name for p in ordered), *(f.profile for f in self.fixed)]),
            WHOLE,
        ]


def nodes(dump: Dump, driver: str) -> list[NodeView]:
    """By name; of `driver` alone."""
    pools: dict[str, list[StoredSlice]] = {}
    for each in dump.slices:
        if each.driver == driver:
            pools.setdefault(each.pool, []).append(each)
    held = _held(dump.claims, driver)
    views = [_view(pool, slices, held) for pool, slices in pools.items()]
    return sorted(views, key=lambda v: v.node)


_Held = Mapping[tuple[str, str], frozenset[ClaimUID]]
"""Who holds a device, by pool and name."""


def _held(claims: Iterable[ResourceClaim], driver: str) -> _Held:
    found: dict[tuple[str, str], frozenset[ClaimUID]] = {}
    for claim in claims:
        results = claim.status.allocation.devices.results if claim.status.allocation else ()
        for result in results:
            if result.driver == driver and not result.admin_access:
                key = result.pool, result.device
                found[key] = found.get(key, frozenset()) | {ClaimUID(claim.metadata.uid)}
    return found


def _view(pool: str, slices: Sequence[StoredSlice], held: _Held) -> NodeView:
    newest = max(s.generation for s in slices)
    current = sorted((s for s in slices if s.generation == newest), key=lambda s: s.name)
    problems = [f"slice {s.name} has content that we do not know" for s in current if not s.content]
    if len(current) != current[0].count:
        problems.append(f"{len(current)} of the pool's {current[0].count} slices are there")
    contents = [s.content for s in current if s.content]
    devices = [d for c in contents for d in c.devices]
    seen = [found for d in devices if (found := see(d))]
    if len(seen) < len(devices):
        problems.append(f"{len(devices) - len(seen)} devices of a kind that we do not know")
    sets = {c.name: c for content in contents for c in content.counter_sets}
    by_gpu: dict[GpuUuid, list[Seen]] = {}
    for each in sorted(seen, key=_by_address):
        by_gpu.setdefault(each.gpu, []).append(each)
    boards: list[Board] = []
    for uuid, of_gpu in by_gpu.items():
        match board(uuid, of_gpu, sets):
            case str(reason):
                problems.append(reason)
            case found_board:
                boards.append(found_board)
    known = {b.uuid for b in boards}
    refs = {d.ref: d for d in seen if d.ref is not None and d.gpu in known}
    holders = {ref: held.get((pool, d.device.name), frozenset()) for ref, d in refs.items()}
    return NodeView(
        node=current[0].node or pool,
        boards=tuple(boards),
        live=_live(boards, holders, refs),
        claims=_claims(holders),
        names={ref: d.device.name for ref, d in refs.items()},
        fixed=tuple(
            Fixed(
                name=d.device.name,
                profile=d.kind,
                claims=held.get((pool, d.device.name), frozenset()),
                closed=d.closed,
            )
            for d in seen
            if d.ref is None and d.gpu in known
        ),
        problems=tuple(problems),
    )


def _by_address(seen: Seen) -> tuple[str, str]:
    return _pci(seen.device), seen.device.name


def _pci(device: Device) -> str:
    """Partitions do not have it; theirs is a GPU that cannot be had as a whole."""
    found = dict(device.attributes).get(PCI_BUS_ID)
    return found.value if isinstance(found, Text) else "~"


def _live(
    boards: Iterable[Board],
    holders: Mapping[Ref, frozenset[ClaimUID]],
    refs: Mapping[Ref, Seen],
) -> Live:
    """A slot is withheld if every partition on it is closed."""
    taken = [ref for ref, claims in holders.items() if claims]
    cut = {b.uuid for b in boards if b.offer is not None}
    closed, usable = dict[GpuUuid, int](), dict[GpuUuid, int]()
    for ref, seen in refs.items():
        if isinstance(ref, Partition) == (seen.gpu in cut):
            side = closed if seen.closed else usable
            side[seen.gpu] = side.get(seen.gpu, 0) | seen.slots
    withheld = {gpu: mask & ~usable.get(gpu, 0) for gpu, mask in closed.items()}
    return Live(
        partitions=frozenset(r for r in taken if isinstance(r, Partition)),
        whole=frozenset(r.gpu for r in taken if isinstance(r, Whole)),
        withheld={gpu: mask for gpu, mask in withheld.items() if mask},
    )


def _claims(holders: Mapping[Ref, frozenset[ClaimUID]]) -> Claims:
    found: dict[ClaimUID, frozenset[Ref]] = {}
    for ref, claims in holders.items():
        for uid in claims:
            found[uid] = found.get(uid, frozenset()) | {ref}
    return found
