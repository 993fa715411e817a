"""The best that any policy can do online on two GPUs, exactly: a Markov decision process, solved.

Why it exists: "99 % of the optimum" needs the optimum. A job that fits must be taken, nothing
moves, jobs come and go at random; the policy chooses where, knowing everything but the future. One
GPU of the 8-slot class has 723 layouts. Jobs that hold the same slots end alike, so the kind does
not matter once it runs; and layouts that nothing can tell apart are merged, by refining a partition
until all members of a class have the same successors. What is left is solved by relative value
iteration, which also bounds its own error.

`python -m tests.bench.optimum` solves all scenarios anew, in minutes, and writes them down.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from driver.core.geometry import Offer
from driver.core.packing import WHOLE
from driver.core.simulation.compare import default_offer
from driver.core.simulation.jobs import rate, sizes
from driver.core.simulation.mixes import MIXES, on_board
from tests.data.mig_boards import H100

STORED: Final = Path(__file__).with_name("optimum.json")
MIX_NAMES: Final = ("uniform", "small", "mid", "big", "bimodal", "alishare")
LOADS: Final = (0.5, 0.7, 1.0)
GPUS: Final = 2
PRECISION: Final = 2e-5
_FIXED_SWEEPS: Final = 12

Layout = frozenset[int]
"""The slots of each job on one GPU, as masks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """Classes of layouts; class 0 is empty. `grown[c][k]`: where one more of kind `k` can lead;
    `ends[c]`: where each job that ends leads, once for each job.
    """

    grown: tuple[tuple[tuple[int, ...], ...], ...]
    ends: tuple[tuple[int, ...], ...]


def one_gpu(offer: Offer, kinds: tuple[str, ...]) -> Gpu:
    masks = [_masks(offer, kind) for kind in kinds]
    layouts, front = {frozenset[int](): None}, [frozenset[int]()]
    while front:
        layout = front.pop()
        for grown in (g for of_kind in masks for g in _grown(layout, of_kind)):
            if grown not in layouts:
                layouts[grown] = None
                front.append(grown)
    classes = dict.fromkeys(layouts, 0)
    count = 0
    while count < (count := len(set(classes.values()))) or count == 1:
        signatures = {x: _signature(x, masks, classes) for x in layouts}
        numbers = {s: n for n, s in enumerate(dict.fromkeys(signatures.values()))}
        classes = {x: numbers[s] for x, s in signatures.items()}
    members = {number: x for x, number in reversed(classes.items())}
    found = [_signature(members[n], masks, classes) for n in range(len(members))]
    return Gpu(grown=tuple(f[1] for f in found), ends=tuple(f[2] for f in found))


def _masks(offer: Offer, kind: str) -> list[int]:
    if kind == WHOLE:
        return [offer.geometry.all_slots]
    return [p.mask for p in offer.geometry.profile(kind).placements]


def _grown(layout: Layout, masks: list[int]) -> list[Layout]:
    taken = sum(layout)
    return [layout | {mask} for mask in masks if not mask & taken]


_Signature = tuple[int, tuple[tuple[int, ...], ...], tuple[int, ...]]


def _signature(layout: Layout, masks: list[list[int]], classes: Mapping[Layout, int]) -> _Signature:
    """What tells it from others: its class so far, and those of all its successors."""
    return (
        classes[layout],
        tuple(tuple(sorted({classes[g] for g in _grown(layout, m)})) for m in masks),
        tuple(sorted(classes[layout - {mask}] for mask in layout)),
    )


def optimum(offer: Offer, mix: Mapping[str, float], load: float) -> float:
    """Compute-weighted acceptance of the best policy on two GPUs, to within `PRECISION`."""
    kinds, of = tuple(mix), sizes(offer)
    arrivals, total = rate(offer, GPUS, mix, load), sum(mix.values())
    rates = [arrivals * mix[kind] / total for kind in kinds]
    gains = [of[kind].compute for kind in kinds]
    gpu = one_gpu(offer, kinds)
    pairs = [(a, b) for a in range(len(gpu.ends)) for b in range(a, len(gpu.ends))]
    number = {pair: n for n, pair in enumerate(pairs)}

    def join(a: int, b: int) -> int:
        return number[min(a, b), max(a, b)]

    choices = [
        [
            (
                r,
                r * g,
                tuple(
                    {*(join(x, b) for x in gpu.grown[a][k]), *(join(a, x) for x in gpu.grown[b][k])}
                ),
            )
            for k, (r, g) in enumerate(zip(rates, gains, strict=True))
            if gpu.grown[a][k] or gpu.grown[b][k]
        ]
        for a, b in pairs
    ]
    ends = [
        (*(join(x, b) for x in gpu.ends[a]), *(join(a, x) for x in gpu.ends[b])) for a, b in pairs
    ]
    offered = sum(r * g for r, g in zip(rates, gains, strict=True))
    return _average(choices, ends) / offered


_Choices = list[list[tuple[float, float, tuple[int, ...]]]]


def _average(choices: _Choices, ends: list[tuple[int, ...]]) -> float:
    """The best reward in one mean duration. `choices[s]`: rate, reward and options of each kind
    that fits. Between two sweeps that choose, some follow what was chosen; they are cheaper.
    """
    pace = max(sum(c[0] for c in cs) + len(e) for cs, e in zip(choices, ends, strict=True))
    states = range(len(ends))
    stays = [pace - sum(c[0] for c in choices[s]) - len(ends[s]) for s in states]
    fixed = [sum(c[1] for c in choices[s]) for s in states]
    value = [0.0] * len(ends)
    while True:
        steps, chosen = [0.0] * len(ends), []
        for s in states:
            best = [(r, max(options, key=value.__getitem__)) for r, _, options in choices[s]]
            chosen.append(best)
            steps[s] = (
                fixed[s]
                + stays[s] * value[s]
                + sum([r * value[t] for r, t in best])
                + sum([value[t] for t in ends[s]])
            ) / pace
        gains = [step - old for step, old in zip(steps, value, strict=True)]
        low, high = min(gains) * pace, max(gains) * pace
        if high - low < 2 * PRECISION * max(low, PRECISION):
            return (low + high) / 2
        for _ in range(_FIXED_SWEEPS):
            value = steps
            steps = [
                (
                    fixed[s]
                    + stays[s] * value[s]
                    + sum([r * value[t] for r, t in chosen[s]])
                    + sum([value[t] for t in ends[s]])
                )
                / pace
                for s in states
            ]
        value = [v - steps[0] for v in steps]


def key(mix: str, load: float) -> str:
    return f"{mix}-{load}"


def stored() -> dict[str, float]:
    found: dict[str, float] = json.loads(STORED.read_text())
    return found


if __name__ == "__main__":
    offer = default_offer(H100)
    solved = {}
    for name in MIX_NAMES:
        for load in LOADS:
            solved[key(name, load)] = round(optimum(offer, on_board(MIXES[name], offer), load), 5)
            print(key(name, load), solved[key(name, load)], flush=True)
    STORED.write_text(json.dumps(solved, indent=2) + "\n")
