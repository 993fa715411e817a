"""A picture as SVG text: GPUs in use above the minimum, over load, one line for each policy.

Written by hand because one line chart is no reason for a dependency. Nothing is fetched: fonts are
whatever the viewer has. Colours can be told apart with colour blindness (after Okabe and Ito), and
each line has a mark of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from driver.core.simulation.compare import Contender
from driver.simulate.rows import Row

_WIDTH: Final = 860
_HEIGHT: Final = 500
_LEFT: Final = 72
_RIGHT: Final = 670
_TOP: Final = 84
_BOTTOM: Final = 430
_STYLES: Final = {
    Contender.PACKED: ("#0072b2", "circle", 3),
    Contender.DISTRIBUTED: ("#d55e00", "square", 2),
    Contender.STATIC: ("#009e73", "diamond", 2),
    Contender.NVIDIA: ("#cc79a7", "triangle", 2),
    Contender.NVIDIA_RANDOM: ("#8a6d00", "wedge", 2),
    Contender.REPACK: ("#555555", "square", 2),
}
_CORNERS: Final[dict[str, tuple[tuple[float, float], ...]]] = {
    "square": ((-4, -4), (4, -4), (4, 4), (-4, 4)),
    "diamond": ((0, -5.5), (5.5, 0), (0, 5.5), (-5.5, 0)),
    "triangle": ((0, -5.5), (5, 4), (-5, 4)),
    "wedge": ((-5, -4), (5, -4), (0, 5.5)),
}
_LABEL_GAP: Final = 17
_AIR: Final = 1.08


def draw(subtitle: str, found: Sequence[Row]) -> str:
    """All rows, whatever their order."""
    lines: dict[Contender, list[tuple[float, float]]] = {}
    for row in found:
        lines.setdefault(row.policy, []).append((row.load, row.outcome.excess_gpus))
    frame = _Frame(found)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        f' width="{_WIDTH}" height="{_HEIGHT}" font-family="Helvetica, Arial, sans-serif">'
    )
    parts = [
        head,
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        _text(_LEFT, 34, "GPUs in use above the fewest that could hold the same jobs", size=18),
        _text(_LEFT, 58, subtitle, size=13, fill="#555555"),
        *frame.axes(),
        *(part for policy, points in lines.items() for part in _series(frame, policy, points)),
        *_labels(frame, lines),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


class _Frame:
    """From loads and GPUs to points of the picture."""

    def __init__(self, found: Sequence[Row]) -> None:
        loads = [row.load for row in found]
        self._loads = _steps(min(loads), max(loads))
        most = max(row.outcome.excess_gpus for row in found)
        self._excesses = _steps(0, max(most * _AIR, 0.1))

    def x(self, load: float) -> float:
        return _between(load, self._loads, _LEFT, _RIGHT)

    def y(self, excess: float) -> float:
        return _between(excess, self._excesses, _BOTTOM, _TOP)

    def axes(self) -> Iterator[str]:
        for value in self._loads:
            x = self.x(value)
            yield _stroke([(x, _TOP), (x, _BOTTOM + 5)], "#efefef", 1)
            yield _text(x, _BOTTOM + 21, f"{value:g}", anchor="middle")
        for value in self._excesses:
            y = self.y(value)
            yield _stroke([(_LEFT, y), (_RIGHT, y)], "#e3e3e3" if value else "#333333", 1)
            yield _text(_LEFT - 10, y + 4, f"{value:g}", anchor="end")
        middle = (_LEFT + _RIGHT) / 2
        yield _text(
            middle, _BOTTOM + 46, "load: slots asked for / slots there are", anchor="middle"
        )
        yield (
            f'<g transform="translate(24 {(_TOP + _BOTTOM) / 2:.1f}) rotate(-90)">'
            + _text(0, 0, "excess GPUs, mean over time", anchor="middle")
            + "</g>"
        )


def _steps(low: float, high: float) -> list[float]:
    """Round numbers that hold `low` to `high`, six or so."""
    span = (high - low) or 0.2
    unit = 10 ** math.floor(math.log10(span / 5))
    step = next(s * unit for s in (1, 2, 2.5, 5, 10) if span / (s * unit) <= 8)  # noqa: PLR2004
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(n * step, 10) for n in range(first, max(last, first + 1) + 1)]


def _between(value: float, steps: Sequence[float], start: float, end: float) -> float:
    return start + (value - steps[0]) / (steps[-1] - steps[0]) * (end - start)


def _series(
    frame: _Frame, policy: Contender, points: Sequence[tuple[float, float]]
) -> Iterator[str]:
    colour, mark, width = _STYLES[policy]
    at = [(frame.x(load), frame.y(excess)) for load, excess in sorted(points)]
    dash = ' stroke-dasharray="6 4"' if policy is Contender.REPACK else ""
    yield _stroke(at, colour, width, dash)
    yield from (_mark(x, y, colour, mark) for x, y in at)


def _labels(frame: _Frame, lines: dict[Contender, list[tuple[float, float]]]) -> Iterator[str]:
    """At the end of each line, moved apart where lines end close to each other."""
    ends = sorted((frame.y(max(points)[1]), policy) for policy, points in lines.items())
    x = max(frame.x(load) for points in lines.values() for load, _ in points)
    places: list[float] = []
    for y, _ in ends:
        places.append(max(y, places[-1] + _LABEL_GAP) if places else y)
    over = max(0.0, places[-1] - _BOTTOM)
    for n in reversed(range(len(places))):
        limit = places[n + 1] - _LABEL_GAP if n + 1 < len(places) else _BOTTOM
        places[n] = min(places[n], limit) if over else places[n]
    for place, (y, policy) in zip(places, ends, strict=True):
        colour, mark, _ = _STYLES[policy]
        yield _stroke([(x + 6, y), (x + 20, place)], colour, 1)
        yield _mark(x + 28, place, colour, mark)
        weight = "bold" if policy is Contender.PACKED else "normal"
        yield _text(x + 38, place + 4, policy.value, fill=colour, weight=weight)


def _stroke(
    points: Sequence[tuple[float, float]], colour: str, width: float, more: str = ""
) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"'
        f' stroke-linejoin="round"{more}/>'
    )


def _mark(x: float, y: float, colour: str, kind: str) -> str:
    if kind not in _CORNERS:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{colour}"/>'
    path = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in _CORNERS[kind])
    return f'<polygon points="{path}" fill="{colour}"/>'


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: int = 13,
    anchor: str = "start",
    fill: str = "#222222",
    weight: str = "normal",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{fill}"'
        f' font-weight="{weight}">{escape(text)}</text>'
    )
