"""Paths inside a driver root, with symbolic links read as if the root were `/`.

Why it exists: in a driver container's root, `libcuda.so.1 -> /usr/lib64/libcuda.so.580` means its
own `/usr`. Followed by the system it would lead to the plugin's image, or to a file of the host
that nobody meant to mount.

Must not know what the files are.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

_MAX_LINKS: Final = 40
"""As in the kernel; more is a loop."""

Stamp = tuple[int, int, int]
"""(device, inode, mtime in ns) of a folder: another one means that its entries may differ."""


class RootedReader:
    """Resolves paths, and keeps a stamp of every folder that an answer depended on."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.folders: dict[str, Stamp] = {}

    def resolve(self, path: str) -> str | None:
        """`path` and the answer are relative to the root, without a leading slash.

        None where it does not exist, or is a loop.
        """
        todo = _parts(path)[::-1]
        done: list[str] = []
        links = 0
        while todo:
            name = todo.pop()
            if name == "..":
                done = done[:-1]  # `..` of the root is the root
                continue
            self._note("/".join(done))
            here = "/".join((*done, name))
            try:
                mode = os.lstat(self.real(here)).st_mode
                target = os.readlink(self.real(here)) if stat.S_ISLNK(mode) else None  # noqa: PTH115
            except OSError:
                return None
            if target is None:
                done.append(name)
                continue
            links += 1
            if links > _MAX_LINKS:
                return None
            done = [] if target.startswith("/") else done
            todo.extend(_parts(target)[::-1])
        return "/".join(done)

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

    def _note(self, folder: str) -> None:
        """Before the folder is read: a change in between must show."""
        if folder not in self.folders:
            found = stamp(self.real(folder))
            if found is not None:
                self.folders[folder] = found


def stamp(folder: str) -> Stamp | None:
    try:
        found = os.stat(folder)  # noqa: PTH116
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _parts(path: str) -> list[str]:
    return [p for p in path.split("/") if p not in {"", "."}]
