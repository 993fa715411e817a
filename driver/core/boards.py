"""What the GPUs of a node publish in their modes: `(gpus, modes, profiles) -> NodeBoards`.

Why it exists: from here on a GPU is a board with an offer, and packing need not ask why a board has
no partitions or no full device. Must not know slices or what is in use, but for the GPUs that are
kept whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from api.resource.types import Taint, TaintEffect
from driver.core.counters import Inexpressible, find_counters
from driver.core.errors import ConfigError
from driver.core.geometry import Geometry, Offer, bound, names, offers
from driver.core.ids import GpuUuid
from driver.core.late_binding import Safe, TooLarge, Unsafe, check
from driver.core.late_counters import find_late_counters
from driver.core.modes import Assigned, Mode
from driver.core.names import unfit
from driver.core.occupancy import Board, Live, Partition, Whole, states
from driver.core.snapshot import GpuFacts, InstanceFacts


class Binding(StrEnum):
    """Who chooses the start of a partition: the scheduler, with the device, or its preparation."""

    SCHEDULER = "scheduler"
    PREPARE = "prepare"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBoards:
    """`boards`: of the GPUs in the modes dynamic and full, by PCI address.

    `static` and `existing`: the GPUs that an administrator cut, and their partitions; these alone
    are published there, without counters. `refused`: by GPU, why something that its mode asks for
    is not published. `unfound`: listed profiles that no GPU has that was read.
    """

    boards: tuple[Board, ...] = ()
    static: tuple[Board, ...] = ()
    existing: frozenset[Partition] = frozenset()
    refused: Mapping[GpuUuid, str] = field(default_factory=dict)
    unfound: tuple[str, ...] = ()


def boards(
    gpus: Sequence[GpuFacts],
    modes: Mapping[GpuUuid, Assigned],
    profiles: Sequence[str] | None = None,
    binding: Binding = Binding.SCHEDULER,
    *,
    complete: bool = True,
) -> NodeBoards:
    """`profiles`: those that may be made, None for the default ones. ConfigError for one that no
    GPU of the node has; a node without MIG takes any list, and so does one that is not `complete`:
    a GPU that does not answer may be the one that has it. `binding`: of the partitions that we
    make; those that are there have their places.
    """
    late = binding is Binding.PREPARE
    ordered = sorted(gpus, key=lambda g: g.pci)
    offered, unfound = _offers(ordered, profiles, complete=complete)
    found: list[Board] = []
    static: list[Board] = []
    existing: set[Partition] = set()
    refused: dict[GpuUuid, str] = {}
    for gpu in ordered:
        match modes[gpu.uuid].mode:
            case Mode.DYNAMIC:
                offer, refusal = None, _unread(gpu)
                if gpu.uuid in offered:
                    offer, refusal = _expressible(bound(offered[gpu.uuid], late=late))
                # Leaving MIG mode would need a reset, and in it the full GPU runs nothing.
                full = gpu.mig.switchable or not gpu.mig.enabled
                found.append(Board(uuid=gpu.uuid, offer=offer, full=full))
            case Mode.STATIC:
                offer, here, refusal = _existing(gpu)
                static.append(Board(uuid=gpu.uuid, offer=offer, full=False))
                existing |= here
            case Mode.FULL:
                refusal = ""
                found.append(Board(uuid=gpu.uuid))
            case Mode.EXCLUDED:
                continue
        if refusal:
            refused[gpu.uuid] = refusal
    return NodeBoards(
        boards=tuple(found),
        static=tuple(static),
        existing=frozenset(existing),
        refused=refused,
        unfound=unfound,
    )


def _offers(
    gpus: Sequence[GpuFacts], profiles: Sequence[str] | None, *, complete: bool
) -> tuple[dict[GpuUuid, Offer], tuple[str, ...]]:
    """All in one call, so that equal boards share one object and a list is checked once."""
    cut: dict[GpuUuid, Geometry] = {}
    for gpu in gpus:
        if gpu.mig.geometry is not None:
            cut[gpu.uuid] = gpu.mig.geometry
    if not cut:
        return {}, ()
    unfound: tuple[str, ...] = ()
    if profiles is not None and not complete:
        known = {p.name for geometry in cut.values() for p in geometry.profiles}
        unfound = tuple(name for name in profiles if name not in known)
        profiles = [name for name in profiles if name in known]
    try:
        return dict(zip(cut, offers([*cut.values()], profiles), strict=True)), unfound
    except ConfigError as error:
        raise ConfigError(f"mig_profiles: {error}") from error


def _unread(gpu: GpuFacts) -> str:
    """Why there is nothing to cut on a GPU without a geometry."""
    why = f"MIG cannot be read: {gpu.mig.unread}" if gpu.mig.unread else "NVML names no MIG profile"
    return f"no partitions are published, {why}"


def _expressible(offer: Offer) -> tuple[Offer | None, str]:
    """No offer where counters cannot say it, an inexact one would admit what does not fit; or where
    its devices cannot be named: one bad name would cost the slices of all GPUs.
    """
    odd = unfit(names(offer.geometry.profiles))
    for name in names(offer.profiles):
        if name in odd:
            return None, f"no partitions are published, MIG profile {name!r}: {odd[name]}"
    match find_late_counters(offer) if offer.late else find_counters(offer):
        case Inexpressible(reason=reason):
            return None, f"no partitions are published, they cannot be told by counters: {reason}"
        case _:
            return offer, ""


def _existing(gpu: GpuFacts) -> tuple[Offer | None, frozenset[Partition], str]:
    """GPU instances that a container can open: with one compute instance each. Whatever profiles
    are listed, because the administrator has made these.
    """
    geometry = gpu.mig.geometry
    if geometry is None:
        return None, frozenset(), _unread(gpu)
    by_id = {p.id: p for p in geometry.profiles}
    found = [i for i in gpu.mig.instances if i.profile_id in by_id and len(i.compute) == 1]
    offer, refusal = _expressible(Offer.of(geometry, {by_id[i.profile_id] for i in found}))
    if offer is None:
        return None, frozenset(), refusal
    here = frozenset(
        Partition(gpu=gpu.uuid, profile=by_id[i.profile_id].name, start=i.placement.start)
        for i in found
    )
    return offer, here, "; ".join(_left_out(i) for i in gpu.mig.instances if i not in found)


def _left_out(instance: InstanceFacts) -> str:
    what = f"GPU instance {instance.id} is not published: "
    if len(instance.compute) != 1:
        return what + f"it has {len(instance.compute)} compute instances, not one"
    return what + f"its profile {instance.profile_id} is unknown"


def check_binding(found: Sequence[Board], binding: Binding) -> None:
    """ConfigError where starts chosen at preparation could leave an admitted claim without room."""
    if binding is Binding.SCHEDULER:
        return
    for offer in dict.fromkeys(b.offer for b in found if b.offer is not None and b.partitions()):
        match check(offer):
            case Safe():
                continue
            case Unsafe(witness=witness):
                why = f"this sequence gets stuck: {', '.join(witness)}"
            case TooLarge(reason=why):
                pass
        raise ConfigError(
            "binding: prepare is not safe with the MIG profiles"
            f" {', '.join(names(offer.profiles))}; {why}. Set mig_profiles to one profile that is"
            " smaller than the GPU, or binding to scheduler"
        )


def kept_whole(found: Sequence[Board], live: Live, count: int) -> frozenset[GpuUuid]:
    """The last `count` idle GPUs that are offered as a whole, and that claims get: no sick ones.
    Their partitions get `kept_taint`.

    From the last one, as whole GPUs are given out, so that a reservation moves as little as can be.
    """
    now = states(found, live)
    idle = [
        b.uuid
        for b, s in zip(found, now, strict=True)
        if b.full and s.idle and Whole(gpu=b.uuid) not in live.tainted
    ]
    return frozenset(idle[max(0, len(idle) - count) :])


def kept_taint(driver: str) -> Taint:
    """On partitions of a GPU that is kept whole; a claim that tolerates it may still take one."""
    return Taint(key=f"{driver}/kept", value="whole", effect=TaintEffect.NO_SCHEDULE)
