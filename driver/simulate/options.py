"""What was asked for, checked: `Namespace -> Options`. Each error names flag, value and allowed."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from driver.core.counters import Inexpressible, find_counters
from driver.core.errors import ConfigError
from driver.core.geometry import Geometry, Offer, offers
from driver.core.simulation.compare import Contender, default_offer
from driver.core.simulation.jobs import sizes
from driver.core.simulation.kinds import kind_named
from driver.core.simulation.mixes import MIXES, on_board
from driver.simulate.boards import examples, read_boards

_BOARD: Final = "H100-80"
_MIX: Final = "uniform"
_ARRIVALS: Final = "5000"
_MOST: Final = 10**9
"""Far more than can be simulated, and safe to compute with."""
_PLOTTED: Final = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`mix_name` is what the user said; `mix` is by kind. `stream` is a recording, if any."""

    board: str
    offer: Offer
    gpus: int
    mix_name: str
    mix: Mapping[str, float]
    loads: tuple[float, ...]
    policies: tuple[Contender, ...]
    lag: int
    arrivals: int
    seed: int
    stream: Path | None
    json: bool
    plot: Path | None


def read(chosen: Namespace) -> Options:
    board, geometry = _board(chosen.board, chosen.geometry)
    offer = _offer(board, geometry, chosen.profiles)
    stream = Path(chosen.stream) if chosen.stream else None
    if stream:
        for flag in ("mix", "load", "arrivals", "plot"):
            if getattr(chosen, flag) is not None:
                raise ConfigError(f"--{flag} does not go with --stream: a recording has its own")
    plot = Path(chosen.plot) if chosen.plot else None
    if plot and plot.suffix != ".svg":
        raise ConfigError(f"--plot: {plot} is not a name that ends in .svg, the one format written")
    loads: tuple[float, ...] = _PLOTTED if plot else (0.5,)
    if chosen.load is not None:
        loads = tuple(_positive("--load", text) for text in _split("--load", chosen.load))
    mix_name = chosen.mix or _MIX
    return Options(
        board=board,
        offer=offer,
        gpus=_whole("--gpus", chosen.gpus, least=1),
        mix_name=mix_name,
        mix=_mix(mix_name, offer),
        loads=loads,
        policies=_policies(chosen.policy),
        lag=_whole("--lag", chosen.lag, least=0),
        arrivals=_whole("--arrivals", chosen.arrivals or _ARRIVALS, least=2),
        seed=_whole("--seed", chosen.seed, least=0),
        stream=stream,
        json=chosen.json,
        plot=plot,
    )


def _board(name: str | None, file: str | None) -> tuple[str, Geometry]:
    boards = read_boards(Path(file)) if file else examples()
    if name is None:
        name = next(iter(boards)) if len(boards) == 1 else _BOARD
    if name not in boards:
        where = f"in {file}" if file else "built in, and others can be read with --geometry FILE"
        raise ConfigError(f"--board: there is no {name!r}; allowed: {', '.join(boards)} ({where})")
    return name, boards[name]


def _offer(board: str, geometry: Geometry, profiles: str | None) -> Offer:
    if profiles is None:
        offer = default_offer(geometry)
    else:
        offer = offers([geometry], _split("--profiles", profiles))[0]
    match find_counters(offer):
        case Inexpressible(reason=reason):
            raise ConfigError(f"board {board} cannot be simulated: {reason}")
    return offer


def _mix(text: str, offer: Offer) -> dict[str, float]:
    if text in MIXES:
        mix = on_board(MIXES[text], offer)
        if not mix:
            raise ConfigError(f"--mix: nothing of {text!r} is offered by this board")
        return mix
    if "=" not in text:
        raise ConfigError(
            f"--mix: there is no {text!r}; allowed: {', '.join(MIXES)},"
            " or weights as PROFILE=NUMBER,gpu=NUMBER"
        )
    return dict(_weight(part, sizes(offer)) for part in _split("--mix", text))


def _weight(part: str, kinds: Collection[str]) -> tuple[str, float]:
    name, _, number = part.partition("=")
    return kind_named("--mix", name, kinds), _positive("--mix", number)


def _policies(texts: Sequence[str] | None) -> tuple[Contender, ...]:
    if texts is None:
        return tuple(Contender)
    known = {c.value: c for c in Contender}
    asked = [name for text in texts for name in _split("--policy", text)]
    for name in asked:
        if name not in known:
            raise ConfigError(f"--policy: there is no {name!r}; allowed: {', '.join(known)}")
    return tuple(dict.fromkeys(known[name] for name in asked))


def _split(flag: str, text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise ConfigError(f"{flag}: {text!r} names nothing")
    return parts


def _whole(flag: str, text: str, *, least: int) -> int:
    digits = len(str(_MOST))
    if not text.isdecimal() or len(text) > digits or not least <= int(text) <= _MOST:
        raise ConfigError(f"{flag}: {text!r} is not a whole number from {least} up to {_MOST}")
    return int(text)


def _positive(flag: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 1 / _MOST <= number <= _MOST:
        raise ConfigError(
            f"{flag}: {text!r} is not a number above 0, from {1 / _MOST:g} up to {_MOST:g}"
        )
    return number
