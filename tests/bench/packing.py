"""How well the published order packs, beside the exact optimum and other orders.

Why it exists: an order is a policy, and a policy is only as good as what it leaves free. Every
number comes from the driver's own code: slices laid out and replaced as the driver does, and a
scheduler that takes the first device that fits. All policies get the same jobs; seeds are fixed, so
a run repeats exactly. No GPU, no cluster.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Final

from driver.core.simulation.compare import Contender, Setup, default_offer, outcome, room
from driver.core.simulation.jobs import Job, poisson, rate
from driver.core.simulation.mixes import MIXES, on_board
from driver.core.simulation.play import Outcome, gap_closed
from tests.bench import repacking, report
from tests.bench.optimum import GPUS, solve
from tests.bench.regret import ratio
from tests.bench.report import AT_LEAST, Result
from tests.data.mig_boards import H100

OFFER: Final = default_offer(H100)
LINES: Final = (Contender.NVIDIA, Contender.STATIC, Contender.PACKED, Contender.REPACK)
TWO_GPU_MIXES: Final = ("uniform", "small", "mid", "big", "bimodal", "alishare")
TWO_GPU_LOADS: Final = (0.5, 0.7, 1.0)
TWO_GPU_JOBS: Final = 30_000
NODE: Final = 8
NODE_LOADS: Final = (0.5, 0.8, 1.0)
NODE_JOBS: Final = 20_000
SEEDS: Final = (1, 2, 3, 4)
_WARMUP: Final = 20

Lines = Mapping[Contender, Outcome]
Figures = Mapping[Contender, float]


def measure() -> dict[str, Result]:
    two = {f"{m}-{load}": ratios(m, load) for m in TWO_GPU_MIXES for load in TWO_GPU_LOADS}
    node = {f"{m}-{load}": outcomes(m, load, 1) for m in MIXES for load in NODE_LOADS}
    uniform = [node["uniform-0.5"], *(outcomes("uniform", 0.5, seed) for seed in SEEDS[1:])]
    worst = {line: min(row[line] for row in two.values()) for line in LINES}
    excess = _each(lambda line: fmean(u[line].excess_gpus for u in uniform))
    false = _each(lambda line: 100 * fmean(u[line].false_refusals for u in uniform))
    gaps = _each(lambda line: fmean(_gap(row, line) for row in node.values()))
    _table("Two GPUs: compute acceptance, % of the best online policy", two, 100)
    accepted = {k: _each(_compute(row)) for k, row in node.items()}
    _table("8 GPUs: compute acceptance, %", accepted, 100)
    in_excess = {k: _each(_excess(row)) for k, row in node.items()}
    _table("8 GPUs: GPUs in use above the minimum", in_excess, 1)
    return {
        "packing_optimality_worst": _result(worst, 0.99, "", AT_LEAST),
        "packing_excess_gpus": _result(excess, 0.72, "GPUs"),
        "packing_false_refusals": _result(false, 1.5, "%"),
        "packing_gap_closed": _result(gaps, 0.35, "", AT_LEAST),
    }


def ratios(mix: str, load: float) -> Figures:
    """Two GPUs, by what choices lose; repacking is not a policy, and has a formula."""
    weights = on_board(MIXES[mix], OFFER)
    best = solve(OFFER, weights, load)
    jobs, setup = stream(GPUS, mix, load, TWO_GPU_JOBS, 1), Setup(offer=OFFER, gpus=GPUS)
    found = dict[Contender, float]()
    for line in LINES:
        if line is Contender.REPACK:
            found[line] = repacking.acceptance(OFFER, weights, load, GPUS) / best.acceptance
        else:
            where = room(setup, line, random.Random(1))
            found[line] = ratio(jobs, where, OFFER, best, warmup=len(jobs) // _WARMUP)
    _progress(GPUS, mix, load, 1)
    return found


def outcomes(mix: str, load: float, seed: int) -> Lines:
    """A node of 8 GPUs."""
    jobs, setup = stream(NODE, mix, load, NODE_JOBS, seed), Setup(offer=OFFER, gpus=NODE)
    warmup = len(jobs) // _WARMUP
    found = {line: outcome(jobs, setup, line, random.Random(1), warmup=warmup) for line in LINES}
    _progress(NODE, mix, load, seed)
    return found


def stream(gpus: int, mix: str, load: float, count: int, seed: int) -> list[Job]:
    weights = on_board(MIXES[mix], OFFER)
    source = random.Random(f"{mix} {load} {seed}")
    return list(poisson(weights, rate(OFFER, gpus, weights, load), count, source))


def _gap(row: Lines, line: Contender) -> float:
    return gap_closed(row[line], row[Contender.NVIDIA], row[Contender.REPACK])


def _compute(row: Lines) -> Callable[[Contender], float]:
    return lambda line: row[line].compute_acceptance


def _excess(row: Lines) -> Callable[[Contender], float]:
    return lambda line: row[line].excess_gpus


def _each(figure: Callable[[Contender], float]) -> Figures:
    return {line: figure(line) for line in LINES}


def _result(figures: Figures, goal: float, unit: str, sense: str = report.AT_MOST) -> Result:
    others = (line for line in LINES if line is not Contender.PACKED)
    return Result(
        value=figures[Contender.PACKED],
        goal=goal,
        unit=unit,
        detail=", ".join(f"{line} {figures[line]:.3g}" for line in others),
        sense=sense,
    )


def _table(title: str, rows: Mapping[str, Figures], factor: float) -> None:
    print(f"\n{title}\n{'mix-load':16}" + "".join(f"{line:>10}" for line in LINES))
    for name, row in rows.items():
        print(f"{name:16}" + "".join(f"{factor * row[line]:10.2f}" for line in LINES))


def _progress(gpus: int, mix: str, load: float, seed: int) -> None:
    print(f"{gpus} GPUs, {mix}, load {load}, seed {seed}: done", file=sys.stderr)


if __name__ == "__main__":
    report.write("bench-packing", measure())
