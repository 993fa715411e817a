"""A recorded stream of jobs: one JSON object a line, in the order of time.

`{"at": 12.5, "profile": "1g.10gb", "lasts": 340.0, "name": "training-7"}`: seconds, or any other
unit, as long as it is the same; `gpu` as profile is a full GPU.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from driver.core.errors import ConfigError
from driver.core.simulation.jobs import Job
from driver.core.simulation.kinds import kind_named

_MOST: Final = 1e20
"""Room for nanoseconds since 1970, and none for sums that overflow."""


def read_stream(path: Path, kinds: Collection[str]) -> list[Job]:
    """ConfigError names the line and what is wrong with it. `kinds`: what the board offers."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--stream: {path} cannot be read: {error}") from error
    jobs = [_job(f"{path}:{n}", line, kinds) for n, line in _filled(lines)]
    if len(jobs) <= 1:
        raise ConfigError(f"--stream: {path} has {len(jobs)} jobs; two are the least")
    for (number, _), job, following in zip(_filled(lines), jobs, jobs[1:], strict=False):
        if following.at < job.at:
            raise ConfigError(
                f"{path}: a job at {following.at:g} comes after line {number} at {job.at:g};"
                " sort the lines by time"
            )
    return jobs


def _filled(lines: Iterable[str]) -> list[tuple[int, str]]:
    return [(n, line) for n, line in enumerate(lines, start=1) if line.strip()]


def _job(where: str, line: str, kinds: Collection[str]) -> Job:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not JSON: {error}") from error
    if not isinstance(found, dict) or not {"at", "profile", "lasts"} <= found.keys():
        raise ConfigError(f"{where}: a job needs at, profile and lasts; found {line.strip()}")
    at, lasts = _number(where, "at", found["at"]), _number(where, "lasts", found["lasts"])
    if lasts <= 0:
        raise ConfigError(f"{where}: lasts is {lasts:g}; it must be more than 0")
    kind = kind_named(where, str(found["profile"]), kinds)
    return Job(at, kind, lasts, str(found.get("name", "")))


def _number(where: str, key: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ConfigError(f"{where}: {key} is {value!r}; it must be a number")
    if not -_MOST <= value <= _MOST:
        raise ConfigError(f"{where}: {key} is no number from {-_MOST:g} to {_MOST:g}")
    return float(value)
