"""Room and the way to more of it: `(NodeView, wanted) -> Advice`."""

from __future__ import annotations

from dataclasses import dataclass

from driver.core.fragmentation import score, still_fits
from driver.core.ids import ClaimUID
from driver.core.release import smallest_release
from driver.plan.nodes import NodeView


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """`device` is free once `claims` have ended; no claims: it is free now."""

    device: str
    claims: frozenset[ClaimUID]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """`fits`: how many more of each kind, if only that kind came. `way` is None where nothing was
    wanted, or where no end of claims would help.
    """

    view: NodeView
    fragmentation: float
    fits: dict[str, int]
    way: Way | None


def advise(view: NodeView, want: str | None) -> Advice:
    fits = still_fits(view.boards, view.live)
    for each in view.fixed:
        fits[each.profile] = fits.get(each.profile, 0) + (not each.claims and not each.closed)
    return Advice(
        view=view,
        fragmentation=score(view.boards, view.live),
        fits=fits,
        way=None if want is None else _way(view, want),
    )


def _way(view: NodeView, want: str) -> Way | None:
    """Of equally many claims, the partition that is made anew: nothing of the administrator's."""
    ways = [
        Way(device=each.name, claims=each.claims)
        for each in view.fixed
        if each.profile == want and not each.closed
    ]
    release = smallest_release(view.boards, view.live, view.claims, want)
    if release is not None:
        ways.insert(0, Way(device=view.names[release.device], claims=release.claims))
    return min(ways, key=lambda way: len(way.claims), default=None)
