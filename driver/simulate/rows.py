"""Outcomes as a table for people and as JSON for programs; the two have the same figures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from driver.core.simulation.compare import Contender
from driver.core.simulation.kinds import name_of
from driver.core.simulation.play import Outcome, gap_closed
from driver.simulate.options import Options

_NO_GAP: Final = 0.005
_HEADS: Final = (
    "load",
    "policy",
    "accepted",
    "compute",
    "false refusals",
    "excess GPUs",
    "whole GPUs",
    "fragmentation",
    "gap closed",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`gap`: of the compute acceptance between NVIDIA's order and repacking; None where one of the
    two was not played, or where they are so close that the share says nothing.
    """

    load: float
    policy: Contender
    outcome: Outcome
    gap: float | None


def rows(load: float, outcomes: dict[Contender, Outcome]) -> list[Row]:
    base, best = outcomes.get(Contender.NVIDIA), outcomes.get(Contender.REPACK)
    if base and best and best.compute_acceptance - base.compute_acceptance < _NO_GAP:
        base = None
    return [
        Row(
            load=load,
            policy=policy,
            outcome=found,
            gap=gap_closed(found, base, best) if base and best else None,
        )
        for policy, found in outcomes.items()
    ]


def table(options: Options, found: Sequence[Row]) -> str:
    lines = [_HEADS, *(_cells(row) for row in found)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return f"{title(options, found)}\n\n" + "".join(_line(line, widths) for line in lines)


def title(options: Options, found: Sequence[Row]) -> str:
    jobs = found[0].outcome.offered
    lag = f", orders {options.lag} events behind" if options.lag else ""
    what = (
        f"jobs of {options.stream.name}"
        if options.stream
        else f"jobs, mix {options.mix_name}, seed {options.seed}"
    )
    return f"{options.gpus} x {options.board}, {jobs} {what}{lag}"


def _cells(row: Row) -> tuple[str, ...]:
    of = row.outcome
    return (
        f"{row.load:.2f}",
        row.policy,
        f"{of.acceptance:.1%}",
        f"{of.compute_acceptance:.1%}",
        f"{of.false_refusals:.1%}",
        f"{of.excess_gpus:.2f}",
        f"{of.whole_gpus:.1%}",
        f"{of.fragmentation:.2f}",
        "-" if row.gap is None else f"{row.gap:.0%}",
    )


def _line(cells: Iterable[str], widths: Sequence[int]) -> str:
    load, policy, *figures = (c for c in cells)
    right = (f.rjust(w) for f, w in zip(figures, widths[2:], strict=True))
    return "  ".join([load.rjust(widths[0]), policy.ljust(widths[1]), *right]) + "\n"


def document(options: Options, found: Sequence[Row]) -> str:
    about = {
        "board": options.board,
        "gpus": options.gpus,
        "profiles": [p.name for p in options.offer.profiles],
        "lag": options.lag,
    }
    jobs: dict[str, object] = (
        {"stream": str(options.stream)}
        if options.stream
        else {
            "mix": {name_of(kind): weight for kind, weight in options.mix.items()},
            "arrivals": options.arrivals,
            "seed": options.seed,
        }
    )
    return (
        json.dumps({**about, **jobs, "results": [_result(row) for row in found]}, indent=2) + "\n"
    )


def _result(row: Row) -> dict[str, object]:
    of = row.outcome
    return {
        "load": row.load,
        "policy": row.policy.value,
        "offered": of.offered,
        "accepted": of.accepted,
        "acceptance": of.acceptance,
        "computeAcceptance": of.compute_acceptance,
        "falseRefusals": of.false_refusals,
        "gpusInUse": of.in_use,
        "gpusMinimum": of.minimum,
        "excessGpus": of.excess_gpus,
        "wholeGpus": of.whole_gpus,
        "fragmentation": of.fragmentation,
        "gapClosed": row.gap,
    }
