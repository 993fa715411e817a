"""Up to where the kernel's log was read, over restarts.

Why it exists: sequence numbers begin anew at each boot, so one without its boot id means nothing.
A file that cannot be used is as good as none: the log is then read from its oldest record, which
tells some things twice and loses none.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from driver.state.atomic import AtomicFolder
from driver.state.failures import state_error

_NAME: Final = "kmsg.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The last record that was handed on; -1: none."""

    boot: str
    sequence: int = -1


class PositionFile:
    """In `folder`, which is there."""

    def __init__(self, folder: Path) -> None:
        self._folder = AtomicFolder(folder, durable=True, mode=0o600)
        self._written: Position | None = None

    def read(self) -> Position | None:
        path = self._folder.path / _NAME
        try:
            found = json.loads(path.read_bytes())
            return Position(boot=str(found["boot"]), sequence=int(found["sequence"]))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise state_error("cannot read", path, error) from error
        except (ValueError, KeyError, TypeError):
            return None

    def write(self, position: Position) -> None:
        """Nothing is written where nothing changed."""
        if position == self._written:
            return
        data = {"boot": position.boot, "sequence": position.sequence}
        self._folder.write(_NAME, json.dumps(data).encode())
        self._written = position
