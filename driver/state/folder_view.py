"""Which files of a folder changed since they were read, for the price of one stat where none did.

Why it exists: two plugin processes keep one folder during a rolling update, and each must see what
the other wrote before it decides. Files are replaced whole, by renaming, so each change of a file
also changes the folder's time.

A time is trusted only once it is older than the clock's steps: what was changed just before a look
may change again without another time, as in git's index. Must not know what is in the files.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from driver.core.errors import StateError
from driver.state.failures import state_error

_SETTLED: Final = 100_000_000
"""Nanoseconds: file times move with the kernel's timer, every 10 ms at the slowest, and later where
a busy virtual machine gets its timer late."""

Stamp = tuple[int, int, int]
"""(inode, mtime in ns, size): another one means another content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """`changed`: new or replaced, by name, with the stamp to remember once it is read."""

    changed: dict[str, Stamp]
    gone: frozenset[str]


class FolderView:
    """For one looking thread at a time; `wrote` and `removed` may come from others between."""

    def __init__(
        self, path: Path, suffix: str, *, now_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._path = os.fspath(path)
        self._suffix = suffix
        self._now_ns = now_ns
        self._stamps: dict[str, Stamp] = {}
        self._clean: tuple[int, int] | None = None
        self._looked_at: tuple[int, int] = (0, 0)
        self._started = 0
        self.looks = 0

    def unchanged(self) -> bool:
        """Whether there can be nothing new; a look says what is wrong with the folder."""
        if self._clean is None:
            return False
        try:
            return self._stamp() == self._clean
        except StateError:
            return False

    def inode(self, name: str) -> int:
        """Of the file as it was read or written last; 0 where that is not known."""
        return self._stamps.get(name, (0, 0, 0))[0]

    def look(self) -> Changes:
        """StateError where the folder cannot be read."""
        self.looks += 1
        self._clean = None
        self._started = self._now_ns()
        self._looked_at = self._stamp()  # before listing: a change in between must show
        files: dict[str, Stamp] = {}
        try:
            with os.scandir(self._path) as found:
                for each in found:
                    if each.name.endswith(self._suffix):
                        try:
                            files[each.name] = stamp_of(each.stat(follow_symlinks=False))
                        except FileNotFoundError:
                            continue
        except OSError as error:
            raise state_error("cannot read", self._path, error) from error
        known = self._stamps
        return Changes(
            changed={n: files[n] for n in sorted(files) if known.get(n) != files[n]},
            gone=frozenset(known.keys() - files.keys()),
        )

    def read(self, name: str, stamp: Stamp) -> None:
        """The file was read as it was at the look. A young one is read again at the next."""
        if self._settled(stamp[1]):
            self._stamps[name] = stamp
        else:
            self._stamps[name] = (0, 0, 0)

    def wrote(self, name: str, stamp: Stamp) -> None:
        """We put it there ourselves, in its turn: it need not be read."""
        self._stamps[name] = stamp

    def removed(self, name: str) -> None:
        self._stamps.pop(name, None)

    def finished(self) -> None:
        """Everything of the last look was read, and nothing was written meanwhile."""
        if self._settled(self._looked_at[1]):
            self._clean = self._looked_at

    def _settled(self, mtime_ns: int) -> bool:
        return mtime_ns < self._started - _SETTLED

    def _stamp(self) -> tuple[int, int]:
        try:
            found = os.stat(self._path)  # noqa: PTH116 - on the way of each preparation
        except OSError as error:
            raise state_error("cannot read", self._path, error) from error
        return found.st_ino, found.st_mtime_ns


def stamp_of(found: os.stat_result) -> Stamp:
    return found.st_ino, found.st_mtime_ns, found.st_size
