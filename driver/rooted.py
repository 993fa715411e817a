"""Paths inside a driver root, read from the file system; `core/rooted.py` follows their links.

Why it is below the adapters: the ones for NVML, CUDA and containers' files all look there. Must not
know what the files are.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from driver.core import rooted
from driver.core.errors import TesseraError

Stamp = tuple[int, int, int]
"""(device, inode, mtime in ns) of a folder: another one means that its entries may differ."""


class NotInDriverRoot(TesseraError):
    """Names every folder that was searched."""


class RootedReader:
    """Resolves paths, and keeps a stamp of every folder that an answer depended on."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.folders: dict[str, Stamp] = {}

    def resolve(self, path: str) -> str | None:
        """`path` and the answer are relative to the root, without a leading slash.

        None where it does not exist, or is a loop.
        """
        return rooted.resolve(path, self._read_link)

    def library(self, soname: str) -> str | None:
        """The file of that name in the first folder that has it, as `resolve` says it."""
        return rooted.find_library(soname, self._read_link)

    def real(self, path: str) -> str:
        """Where the system finds it."""
        return os.path.join(self._root, path)  # noqa: PTH118 - thousands of calls in one scan

    def names(self, folder: str) -> list[str]:
        """Sorted entries of an already resolved folder; none where it cannot be listed."""
        self._note(folder)
        try:
            return sorted(os.listdir(self.real(folder)))  # noqa: PTH208
        except OSError:
            return []

    def _read_link(self, folder: str, name: str) -> str | None:
        self._note(folder)
        path = self.real(f"{folder}/{name}" if folder else name)
        try:
            is_link = stat.S_ISLNK(os.lstat(path).st_mode)
            return os.readlink(path) if is_link else ""  # noqa: PTH115
        except OSError:
            return None

    def _note(self, folder: str) -> None:
        """Before the folder is read: a change in between must show."""
        if folder not in self.folders:
            found = stamp(self.real(folder))
            if found is not None:
                self.folders[folder] = found


def find_library(root: Path, soname: str) -> Path:
    """Looked for anew at each call: the driver may be installed, or updated, at any time."""
    reader = RootedReader(root)
    found = reader.library(soname)
    if found is None:
        raise NotInDriverRoot(
            f"{soname} is in none of {', '.join(rooted.LIBRARY_FOLDERS)} below {root}; install the"
            " NVIDIA driver there, or set driver_root"
        )
    return Path(reader.real(found))


def stamp(folder: str) -> Stamp | None:
    try:
        found = os.stat(folder)  # noqa: PTH116
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns
