"""Advice as a table for people and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from driver.core.ids import ClaimUID
from driver.core.simulation.kinds import name_of
from driver.plan.advice import Advice, Way

_HEADS: Final = ("node", "GPUs", "fragmentation", "still fits, each alone")
Claimed = Mapping[ClaimUID, str]
"""`namespace/name` of each claim."""


def table(found: Sequence[Advice], want: str | None, claimed: Claimed) -> str:
    lines = [_HEADS, *(_cells(advice) for advice in found)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = "".join(_line(line, widths) for line in lines)
    text += "".join(f"\n{a.view.node}: {p}" for a in found for p in a.view.problems)
    if want is None:
        return text
    ways = sorted(found, key=lambda a: (a.way is None, len(a.way.claims) if a.way else 0))
    return text + f"\nroom for {want}:\n" + "".join(_way(a, claimed) for a in ways)


def _cells(advice: Advice) -> tuple[str, ...]:
    fits = ", ".join(f"{name_of(kind)} {count}" for kind, count in advice.fits.items() if count)
    gpus = str(len(advice.view.boards))
    return advice.view.node, gpus, f"{advice.fragmentation:.2f}", fits or "nothing"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    node, gpus, score, fits = cells
    left = f"{node:<{widths[0]}}  {gpus:>{widths[1]}}  {score:>{widths[2]}}"
    return f"{left}  {fits}\n"


def _way(advice: Advice, claimed: Claimed) -> str:
    node, way = advice.view.node, advice.way
    if way is None:
        return f"  {node}: no end of claims makes room\n"
    if not way.claims:
        return f"  {node}: fits now, {way.device} is free\n"
    ends = "\n".join(f"    {name}" for name in _names(way, claimed))
    which = "this claim ends" if len(way.claims) == 1 else f"these {len(way.claims)} claims end"
    return f"  {node}: {way.device} is free once {which}\n{ends}\n"


def _names(way: Way, claimed: Claimed) -> list[str]:
    return sorted(claimed[uid] for uid in way.claims)


def document(found: Sequence[Advice], want: str | None, claimed: Claimed) -> str:
    nodes = [
        {
            "node": a.view.node,
            "gpus": len(a.view.boards),
            "fragmentation": a.fragmentation,
            "fits": {name_of(kind): count for kind, count in a.fits.items()},
            "problems": list(a.view.problems),
            **({} if want is None else {"room": _room(a.way, claimed)}),
        }
        for a in found
    ]
    wanted = {} if want is None else {"want": want}
    return json.dumps({**wanted, "nodes": nodes}, indent=2) + "\n"


def _room(way: Way | None, claimed: Claimed) -> dict[str, object] | None:
    if way is None:
        return None
    return {"device": way.device, "claims": _names(way, claimed)}
