"""Geometries from a file: the built-in examples, or what the user measured.

Why it exists: a simulation has no GPU to ask. The examples are data for this command alone; the
driver publishes what NVML reports, and a board that is not here is simulated from a file.
"""

from __future__ import annotations

import json
from collections import Counter
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from driver.core.errors import ConfigError
from driver.core.geometry import Geometry, MigProfile, Placement
from driver.core.simulation.kinds import GPU

_Count = Annotated[int, Field(ge=1, le=64)]


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Profile(_Read):
    name: str = Field(min_length=1)
    compute: _Count
    size: _Count
    starts: tuple[Annotated[int, Field(ge=0, le=63)], ...] = Field(min_length=1)

    @property
    def most(self) -> int:
        """Side by side on an empty board."""
        count, free = 0, 0
        for start in sorted(self.starts):
            if start >= free:
                count, free = count + 1, start + self.size
        return count


class _Board(_Read):
    slots: _Count
    profiles: tuple[_Profile, ...] = Field(min_length=1)


class _File(_Read):
    note: str = ""
    boards: dict[str, _Board] = Field(min_length=1)


def examples() -> dict[str, Geometry]:
    text = files("driver.simulate").joinpath("boards.json").read_text(encoding="utf-8")
    return _boards(text, "boards.json")


def read_boards(path: Path) -> dict[str, Geometry]:
    """ConfigError names the file and what is wrong in it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--geometry: {path} cannot be read: {error}") from error
    return _boards(text, str(path))


def _boards(text: str, where: str) -> dict[str, Geometry]:
    try:
        found = _File.model_validate(json.loads(text))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{where}: {place}: {first['msg']}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not JSON: {error}") from error
    return {name: _geometry(where, name, board) for name, board in found.boards.items()}


def _geometry(where: str, name: str, board: _Board) -> Geometry:
    for kind, times in Counter([GPU, *(p.name for p in board.profiles)]).items():
        if times > 1:
            raise ConfigError(f"{where}: board {name}: {kind} is the name of two kinds")
    for profile in board.profiles:
        for start in profile.starts:
            if start + profile.size > board.slots:
                raise ConfigError(
                    f"{where}: board {name}: {profile.name} at slot {start} with size"
                    f" {profile.size} is outside of the board's {board.slots} slots"
                )
    return Geometry(
        slots=board.slots,
        profiles=tuple(
            MigProfile(
                index=index,
                id=index,
                name=p.name,
                compute_slices=p.compute,
                memory_mib=0,
                max_instances=p.most,
                placements=tuple(Placement(start=s, size=p.size) for s in p.starts),
            )
            for index, p in enumerate(board.profiles)
        ),
    )
