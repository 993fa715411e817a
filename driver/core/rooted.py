"""Where a path inside a driver root leads, with symbolic links read as if the root were `/`.

Why it exists: in a driver container's root, `libcuda.so.1 -> /usr/lib64/libcuda.so.580` means its
own `/usr`. Followed by the system it would lead to the plugin's image, or to a file of the host
that nobody meant. Several adapters search the same folders, and each reads links in its own way.

Paths are relative to the root, without a leading slash.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

LIBRARY_FOLDERS: Final = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
)
"""Searched in this order; the first file of a name is taken, so 64 bit comes before 32."""

ReadLink = Callable[[str, str], str | None]
"""(folder, name) -> where the entry links to; empty for what is no link, None where nothing is. The
folder has been resolved already.
"""

_MAX_LINKS: Final = 40
"""As in the kernel; more is a loop."""


def resolve(path: str, read_link: ReadLink) -> str | None:
    """The path without links. None where it does not exist, or is a loop."""
    todo = _parts(path)[::-1]
    done: list[str] = []
    links = 0
    while todo:
        name = todo.pop()
        if name == "..":
            done = done[:-1]  # `..` of the root is the root
            continue
        target = read_link("/".join(done), name)
        if target is None:
            return None
        if not target:
            done.append(name)
            continue
        links += 1
        if links > _MAX_LINKS:
            return None
        done = [] if target.startswith("/") else done
        todo.extend(_parts(target)[::-1])
    return "/".join(done)


def find_library(soname: str, read_link: ReadLink) -> str | None:
    """The file of that name in the first folder that has it, without links."""
    found = (resolve(f"{folder}/{soname}", read_link) for folder in LIBRARY_FOLDERS)
    return next((path for path in found if path is not None), None)


def _parts(path: str) -> list[str]:
    return [p for p in path.split("/") if p not in {"", "."}]
