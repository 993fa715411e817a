"""Whether the start of a partition may be chosen at preparation: safe, or how it would break.

Why it exists: a device that names no start is offered by counts alone. Then the choice of starts is
a game: pods come and go in any sequence that the counters admit, nothing that runs is moved, and a
claim that was admitted but cannot be placed leaves its pod stuck for ever. A set of profiles is
safe exactly if some way to choose never loses. That is the greatest fixed point of "every end and
every admitted claim leads to another safe layout"; it is found from the other end, by spreading the
layouts that are lost.

No cleverer counters help: the admission assumed here is exact, every set of counts that some
arrangement of an empty GPU can hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from driver.core.capacity import Move, after, fits, loss, table
from driver.core.geometry import Offer, bound
from driver.core.static_order import static_ranks

MOST_LAYOUTS: Final = 20_000

Layout = frozenset[tuple[int, int]]
"""What runs on one GPU: (position of the profile in the offer, start)."""


@dataclass(frozen=True, slots=True)
class Safe:
    """Some choice of starts can place every claim that is admitted, for ever."""


@dataclass(frozen=True, slots=True)
class Unsafe:
    """`witness`: the shortest sequence that defeats even the best choice, as steps to read."""

    witness: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TooLarge:
    """More layouts than can be gone through; not shown to be safe."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Game:
    """All layouts, what can be added to each, and in how many moves each is lost.

    `grown[l][p]`: the layouts with one more of profile `p`, by start; there is no entry where one
    more is not admitted, and an empty one where it is admitted and has no place.
    """

    grown: Mapping[Layout, Mapping[int, Mapping[int, Layout]]]
    lost: Mapping[Layout, int]


def check(offer: Offer) -> Safe | Unsafe | TooLarge:
    """ContractError where the offer has no counters at all."""
    offer = bound(offer, late=False)
    game = _play(offer)
    if game is None:
        return TooLarge(
            reason=f"the profiles {', '.join(p.name for p in offer.profiles)} have more than"
            f" {MOST_LAYOUTS} layouts on one GPU; list fewer of them, or bind at allocation"
        )
    if frozenset() not in game.lost:
        return Safe()
    return Unsafe(witness=tuple(_witness(offer, game)))


def choose_start(
    offer: Offer, running: Iterable[tuple[str, int]], profile: str, *, blocked: int = 0
) -> int | None:
    """Packed: the start that costs the least potential, then S*, among those that stay safe.

    `running`: (profile, start) on that GPU. `blocked`: slots that anything else has taken. None
    where no start is left, which for a safe offer and an admitted claim only these can cause.
    """
    offer = bound(offer, late=False)
    game = _play(offer)
    names = [p.name for p in offer.profiles]
    layout = frozenset((names.index(name), start) for name, start in running)
    if game is None or layout not in game.grown:
        return None
    of, ranks = table(offer), static_ranks(offer.geometry)
    mask, used = blocked, of.nothing
    position = names.index(profile)
    moves = _moves(offer)
    for one in layout:
        mask, used = after(moves[one], mask, used)
    grown_by = game.grown[layout].get(position, {})
    options = {s: grown for s, grown in grown_by.items() if not moves[position, s].mask & blocked}
    safe = [start for start, grown in options.items() if grown not in game.lost]
    return min(
        safe or options,
        key=lambda s: (loss(of, moves[position, s], mask, used), ranks[profile, s]),
        default=None,
    )


def _moves(offer: Offer) -> dict[tuple[int, int], Move]:
    return {(i, m.start): m for i, moves in enumerate(table(offer).moves) for m in moves}


@lru_cache(maxsize=4)  # thousands of layouts each; a node has one or two kinds of boards
def _play(offer: Offer) -> _Game | None:
    layouts = _layouts(offer)
    if layouts is None:
        return None
    counts = {layout: _counts(layout) for layout in layouts}
    admitted = set(counts.values())
    grown: dict[Layout, dict[int, dict[int, Layout]]] = {}
    for layout in layouts:
        of_layout: dict[int, dict[int, Layout]] = {}
        for position in range(len(offer.profiles)):
            if tuple(sorted((*counts[layout], position))) in admitted:
                of_layout[position] = {}
        grown[layout] = of_layout
    for layout in layouts:
        for position, start in layout:
            smaller = layout - {(position, start)}
            grown[smaller][position][start] = layout
    return _Game(grown=grown, lost=_lost(grown))


def _layouts(offer: Offer) -> list[Layout] | None:
    """Every set of partitions that fits an empty GPU, each once; None where too many."""
    of, moves = table(offer), sorted(_moves(offer).items())
    found: list[tuple[Layout, int, tuple[int, ...]]] = [(frozenset(), 0, of.nothing)]
    for one, move in moves:
        for layout, mask, used in list(found):
            if fits(of, move, mask, used):
                found.append((layout | {one}, *after(move, mask, used)))
        if len(found) > MOST_LAYOUTS:
            return None
    return [layout for layout, _, _ in found]


def _counts(layout: Layout) -> tuple[int, ...]:
    return tuple(sorted(position for position, _ in layout))


def _lost(grown: Mapping[Layout, Mapping[int, Mapping[int, Layout]]]) -> dict[Layout, int]:
    """From which layouts the adversary wins, and in how many moves at most."""
    lost = {
        layout: 1
        for layout, requests in grown.items()
        if any(not options for options in requests.values())
    }
    safe_left = {
        (layout, position): len(options)
        for layout, requests in grown.items()
        for position, options in requests.items()
    }
    front = list(lost)
    while front:
        following: list[Layout] = []
        for layout in front:
            # A pod that ends leads back here, from every layout with one partition more.
            reached = [g for options in grown[layout].values() for g in options.values()]
            for position, start in layout:
                smaller = layout - {(position, start)}
                safe_left[smaller, position] -= 1
                if not safe_left[smaller, position]:
                    reached.append(smaller)
            for each in reached:
                if each not in lost:
                    lost[each] = lost[layout] + 1
                    following.append(each)
        front = following
    return lost


def _witness(offer: Offer, game: _Game) -> Iterable[str]:
    """The adversary's quickest way to win against the choice that holds out longest."""
    names = [p.name for p in offer.profiles]
    layout: Layout = frozenset()
    while True:
        goal = game.lost[layout] - 1
        requests = game.grown[layout]
        stuck = [position for position, options in requests.items() if not options]
        if stuck:
            yield f"allocate {names[stuck[0]]}: admitted, but no start is free"
            return
        ending = [one for one in sorted(layout) if game.lost.get(layout - {one}) == goal]
        if ending:
            position, start = ending[0]
            layout -= {ending[0]}
            yield f"end {names[position]} at {start}"
            continue
        position, options = next(
            (position, options)
            for position, options in requests.items()
            if all(game.lost.get(g, goal + 1) <= goal for g in options.values())
        )
        start, layout = max(options.items(), key=lambda option: game.lost[option[1]])
        yield f"allocate {names[position]} at {start}"
