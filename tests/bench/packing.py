"""How well the published order packs, beside the exact optimum and other orders.

Why it exists: an order is a policy, and a policy is only as good as what it leaves free. Every
number comes from the driver's own code: slices laid out and replaced as the driver does, and a
scheduler that takes the first device that fits. All policies get the same jobs; seeds are fixed, so
a run repeats exactly.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from statistics import fmean
from typing import Final

from driver.core.simulation.compare import Contender, Setup, default_offer, outcome
from driver.core.simulation.jobs import Job, poisson, rate
from driver.core.simulation.mixes import MIXES, on_board
from driver.core.simulation.play import Outcome, gap_closed
from tests.bench import optimum, report
from tests.bench.report import AT_LEAST, Result
from tests.data.mig_boards import H100

OFFER: Final = default_offer(H100)
LINES: Final = (Contender.NVIDIA, Contender.STATIC, Contender.PACKED, Contender.REPACK)
TWO_GPU_JOBS: Final = 200_000
NODE_JOBS: Final = 20_000
NODE_LOADS: Final = (0.5, 0.8, 1.0)
SEEDS: Final = (1, 2, 3, 4)

Lines = dict[Contender, Outcome]


def measure() -> dict[str, Result]:
    two = {
        optimum.key(mix, load): _play(optimum.GPUS, mix, load, TWO_GPU_JOBS, 1)
        for mix in optimum.MIX_NAMES
        for load in optimum.LOADS
    }
    node = {
        optimum.key(mix, load): _play(8, mix, load, NODE_JOBS, 1)
        for mix in MIXES
        for load in NODE_LOADS
    }
    uniform = [_play(8, "uniform", 0.5, NODE_JOBS, seed) for seed in SEEDS]
    ratios = _ratios(two)
    gaps = {
        line: fmean(
            gap_closed(o[line], o[Contender.NVIDIA], o[Contender.REPACK]) for o in node.values()
        )
        for line in LINES
    }
    worst = {line: min(r[line] for r in ratios.values()) for line in LINES}
    excess = {line: fmean(u[line].excess_gpus for u in uniform) for line in LINES}
    false = {line: 100 * fmean(u[line].false_refusals for u in uniform) for line in LINES}
    print(_table("Two GPUs, compute acceptance as % of the exact optimum", _percent(ratios)))
    print(_table("8 GPUs, compute acceptance, %", _acceptance(node)))
    print(_table("8 GPUs, GPUs in use above the minimum", {k: _excess(v) for k, v in node.items()}))
    packed = Contender.PACKED
    return {
        "packing_optimality_worst": Result(
            value=worst[packed], goal=0.99, unit="", detail=_beside(worst, ".3f"), sense=AT_LEAST
        ),
        "packing_excess_gpus": Result(
            value=excess[packed], goal=0.72, unit="GPUs", detail=_beside(excess, ".2f")
        ),
        "packing_false_refusals": Result(
            value=false[packed], goal=1.5, unit="%", detail=_beside(false, ".2f")
        ),
        "packing_gap_closed": Result(
            value=gaps[packed], goal=0.35, unit="", detail=_beside(gaps, ".2f"), sense=AT_LEAST
        ),
    }


def _play(gpus: int, mix: str, load: float, count: int, seed: int) -> Lines:
    jobs = stream(gpus, mix, load, count, seed)
    setup = Setup(offer=OFFER, gpus=gpus)
    found = {}
    for line in LINES:
        source = random.Random(seed)
        found[line] = outcome(jobs, setup, line, source, warmup=count // 20)
    print(f"{gpus} GPUs, {mix}, load {load}, seed {seed}: done", file=sys.stderr)
    return found


def stream(gpus: int, mix: str, load: float, count: int, seed: int) -> Sequence[Job]:
    weights = on_board(MIXES[mix], OFFER)
    arrivals = rate(OFFER, gpus, weights, load)
    return list(poisson(weights, arrivals, count, random.Random(f"{mix} {load} {seed}")))


def _ratios(two: dict[str, Lines]) -> dict[str, dict[Contender, float]]:
    best = optimum.stored()
    return {
        name: {line: o.compute_acceptance / best[name] for line, o in lines.items()}
        for name, lines in two.items()
    }


def _percent(rows: dict[str, dict[Contender, float]]) -> dict[str, dict[Contender, float]]:
    return {name: {line: 100 * v for line, v in row.items()} for name, row in rows.items()}


def _acceptance(rows: dict[str, Lines]) -> dict[str, dict[Contender, float]]:
    return {
        name: {line: 100 * o.compute_acceptance for line, o in row.items()}
        for name, row in rows.items()
    }


def _excess(row: Lines) -> dict[Contender, float]:
    return {line: o.excess_gpus for line, o in row.items()}


def _table(title: str, rows: dict[str, dict[Contender, float]]) -> str:
    head = "".join(f"{line:>10}" for line in LINES)
    body = (
        f"{name:16}" + "".join(f"{row[line]:10.2f}" for line in LINES) for name, row in rows.items()
    )
    return "\n".join([f"\n{title}", f"{'mix, load':16}{head}", *body])


def _beside(values: dict[Contender, float], form: str) -> str:
    others = (line for line in LINES if line is not Contender.PACKED)
    return ", ".join(f"{line} {values[line]:{form}}" for line in others)


if __name__ == "__main__":
    report.write("bench-packing", measure())
