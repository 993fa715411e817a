"""The best that any policy can do online on two GPUs, exactly: a Markov decision process, solved.

Why it exists: "99 % of the optimum" needs the optimum. A job that fits must be taken, nothing
moves, jobs come and go at random; the policy chooses where, knowing everything but the future. One
GPU of the 8-slot class has 723 layouts. Jobs that hold the same slots end alike, so the kind does
not matter once it runs; and layouts that nothing can tell apart are merged, by refining a partition
until all members of a class have the same successors. What is left, 5,050 pairs of classes, is
solved by relative value iteration, which also bounds its own error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from driver.core.geometry import Offer
from driver.core.packing import WHOLE
from driver.core.simulation.jobs import rate, sizes

GPUS: Final = 2
PRECISION: Final = 2e-5
_FIXED_SWEEPS: Final = 12

Layout = frozenset[int]
"""The slots of each job on one GPU, as masks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """Classes of layouts. `grown[c][k]`: where one more of kind `k` can lead; `ends[c]`: where each
    job that ends leads, once for each job.
    """

    classes: Mapping[Layout, int]
    grown: tuple[tuple[tuple[int, ...], ...], ...]
    ends: tuple[tuple[int, ...], ...]


def one_gpu(offer: Offer, kinds: Sequence[str]) -> Gpu:
    masks = [_masks(offer, kind) for kind in kinds]
    layouts, front = {frozenset[int](): None}, [frozenset[int]()]
    while front:
        layout = front.pop()
        for grown in (g for of_kind in masks for g in _grown(layout, of_kind)):
            if grown not in layouts:
                layouts[grown] = None
                front.append(grown)
    classes, count, refined = dict.fromkeys(layouts, 0), 0, 1
    while count < refined:
        signatures = {x: _signature(x, masks, classes) for x in layouts}
        numbers = {s: n for n, s in enumerate(dict.fromkeys(signatures.values()))}
        classes = {x: numbers[s] for x, s in signatures.items()}
        count, refined = refined, len(numbers)
    members = {number: x for x, number in classes.items()}
    found = [_signature(members[n], masks, classes) for n in range(len(members))]
    return Gpu(classes=classes, grown=tuple(f[1] for f in found), ends=tuple(f[2] for f in found))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """`acceptance`: by compute, of the best policy. `values`: of each pair of classes, in compute
    slices; a choice that leads to a lower value than another loses the difference.
    """

    acceptance: float
    mean_compute: float
    gpu: Gpu
    kinds: tuple[str, ...]
    values: Mapping[tuple[int, int], float]

    def value(self, layouts: Sequence[Layout]) -> float:
        return self.values[_pair(*(self.gpu.classes[x] for x in layouts))]

    def best(self, layouts: Sequence[Layout], kind: str) -> float:
        """Of all places where one more of `kind` can go. ValueError where there is none."""
        a, b = (self.gpu.classes[x] for x in layouts)
        return max(self.values[p] for p in _options(self.gpu, a, b, self.kinds.index(kind)))


def _pair(a: int, b: int) -> tuple[int, int]:
    return (a, b) if a <= b else (b, a)


def _options(gpu: Gpu, a: int, b: int, kind: int) -> set[tuple[int, int]]:
    return {
        *(_pair(x, b) for x in gpu.grown[a][kind]),
        *(_pair(a, x) for x in gpu.grown[b][kind]),
    }


def solve(offer: Offer, mix: Mapping[str, float], load: float) -> Optimum:
    """On two GPUs, to within `PRECISION`."""
    kinds, of = tuple(mix), sizes(offer)
    arrivals, total = rate(offer, GPUS, mix, load), sum(mix.values())
    rates = [arrivals * mix[kind] / total for kind in kinds]
    gains = [r * of[kind].compute for r, kind in zip(rates, kinds, strict=True)]
    gpu = one_gpu(offer, kinds)
    pairs = [(a, b) for a in range(len(gpu.ends)) for b in range(a, len(gpu.ends))]
    number = {pair: n for n, pair in enumerate(pairs)}
    choices: _Choices = [
        [
            (rates[k], gains[k], tuple(number[p] for p in options))
            for k in range(len(kinds))
            if (options := _options(gpu, a, b, k))
        ]
        for a, b in pairs
    ]
    ends = [
        tuple(
            number[p]
            for p in (*(_pair(x, b) for x in gpu.ends[a]), *(_pair(a, x) for x in gpu.ends[b]))
        )
        for a, b in pairs
    ]
    gain, values = _average(choices, ends)
    return Optimum(
        acceptance=gain / sum(gains),
        mean_compute=sum(gains) / arrivals,
        gpu=gpu,
        kinds=kinds,
        values=dict(zip(pairs, values, strict=True)),
    )


_Choices = list[list[tuple[float, float, tuple[int, ...]]]]


def _average(choices: _Choices, ends: list[tuple[int, ...]]) -> tuple[float, list[float]]:
    """The best reward in one mean duration, and values. `choices[s]`: rate, reward and options of
    each kind that fits. Between two sweeps that choose, some follow what was chosen: cheaper.
    """
    states = range(len(ends))
    leaves = [sum(c[0] for c in choices[s]) + len(ends[s]) for s in states]
    pace = max(leaves)
    stays = [pace - leaving for leaving in leaves]
    rewards = [sum(c[1] for c in choices[s]) for s in states]
    value = [0.0] * len(ends)

    def sweep(chosen: list[list[tuple[float, int]]]) -> list[float]:
        return [
            (
                rewards[s]
                + stays[s] * value[s]
                + sum([r * value[t] for r, t in chosen[s]])
                + sum([value[t] for t in ends[s]])
            )
            / pace
            for s in states
        ]

    while True:
        chosen = [[(r, max(t, key=value.__getitem__)) for r, _, t in choices[s]] for s in states]
        steps = sweep(chosen)
        gains = [step - old for step, old in zip(steps, value, strict=True)]
        low, high = min(gains) * pace, max(gains) * pace
        if high - low < PRECISION * low:
            return (low + high) / 2, value
        for _ in range(_FIXED_SWEEPS):
            value = steps
            steps = sweep(chosen)
        value = [v - steps[0] for v in steps]
