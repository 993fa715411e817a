"""System calls that are counted, fail at a chosen step, or after which the process is dead."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from driver.state.atomic import Files

CALLS = (
    "open_folder",
    "lock",
    "create",
    "write",
    "chmod",
    "fsync",
    "close",
    "rename",
    "unlink",
)


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


class Killed(BaseException):
    """The process ends here: nothing after this call happens, not even cleaning up."""


class ScriptedFiles(Files):
    """`fail_at`: number of the call, from 0, that fails with `error`. `torn`: bytes per write."""

    def __init__(
        self,
        *,
        fail_at: int | None = None,
        error: BaseException | None = None,
        torn: int | None = None,
    ) -> None:
        self.calls: list[str] = []
        self.fail_at = fail_at
        self.error = error
        self.torn = torn
        self.dead = False
        self.open: set[int] = set()

    def step(self, name: str) -> None:
        if self.dead:
            raise Killed
        self.calls.append(name)
        if len(self.calls) - 1 == self.fail_at and self.error:
            self.dead = isinstance(self.error, Killed)
            raise self.error

    def release(self) -> None:
        """What the kernel does for a dead process: close its files, and so let go of its locks."""
        for fd in self.open:
            os.close(fd)
        self.open.clear()

    def count(self, name: str) -> int:
        return self.calls.count(name)


def _scripted(name: str) -> Any:
    real = getattr(Files, name)

    def call(self: ScriptedFiles, *args: Any) -> Any:
        self.step(name)
        if name == "write" and self.torn is not None:
            args = (args[0], args[1][: self.torn])
        result = real(self, *args)
        if name in {"open_folder", "create"}:
            self.open.add(result)
        elif name == "close":
            self.open.remove(args[0])
        return result

    return call


for _name in CALLS:
    setattr(ScriptedFiles, _name, _scripted(_name))
