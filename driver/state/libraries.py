"""The driver's libraries and programs under its root, as mounts for a container.

Why links become mounts of their own: a program asks for `libcuda.so.1`, which is a link to
`libcuda.so.580.95.05`. CDI can only make links through a hook, a program on the host; two bind
mounts of one file do the same without one.

Why into the loader's own folders: they are searched in every image, so `LD_LIBRARY_PATH`, which
belongs to the image's author, stays as it is.

Must not know device nodes.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final

from driver.core.cdi import Mount
from driver.core.rooted import LIBRARY_FOLDERS
from driver.rooted import RootedReader, Stamp, stamp

_LIBRARY: Final = re.compile(
    r"(?:"
    r"lib(?:cuda|cudadebugger|nvcuvid|nvoptix)"
    r"|libnvidia-(?:ml|cfg|gpucomp|ptxjitcompiler|nvvm\d*|opencl|allocator|pkcs11(?:-openssl\d*)?"
    r"|encode|opticalflow|tileiras|rtcore|nscq|sandboxutils|present|fatbinaryloader|compiler)"
    r")\.so(?:\.[\w.-]+)?",
    re.ASCII,
)
PROGRAMS: Final = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
)
_PROGRAM_FOLDER: Final = "usr/bin"

_SETTLED: Final = 2_000_000_000
"""Nanoseconds. A folder that changed later than this ago may change again with the same mtime."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`names`: the libraries' own file names, among them the ones that programs ask for."""

    names: frozenset[str]
    mounts: tuple[Mount, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scan:
    found: Found
    folders: tuple[tuple[str, Stamp], ...]

    def holds(self) -> bool:
        return all(stamp(folder) == seen for folder, seen in self.folders)


class Libraries:
    """Looks again only when a folder that mattered has changed. Safe for several threads."""

    def __init__(
        self,
        root: Path,
        *,
        host_root: Path,
        container_folders: tuple[str, ...],
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._root = root
        self._host_root = host_root
        self._container_folders = container_folders
        self._now_ns = now_ns
        self._lock = Lock()
        self._last: _Scan | None = None
        self.scans = 0

    def find(self) -> Found:
        with self._lock:
            if self._last is not None and self._last.holds():
                return self._last.found
            scan = self._scan()
            newest = max((seen[2] for _, seen in scan.folders), default=0)
            self._last = scan if newest < self._now_ns() - _SETTLED else None
            return scan.found

    def _scan(self) -> _Scan:
        self.scans += 1
        reader = RootedReader(self._root)
        libraries = _libraries(reader)
        mounts = [
            self._mount(source, f"{folder}/{name}")
            for folder in self._container_folders
            for name, source in libraries.items()
        ]
        for name in PROGRAMS:
            source = _regular(reader, f"{_PROGRAM_FOLDER}/{name}")
            if source is not None:
                mounts.append(self._mount(source, f"/{_PROGRAM_FOLDER}/{name}"))
        found = Found(names=frozenset(libraries), mounts=tuple(mounts))
        folders = tuple((reader.real(f), seen) for f, seen in reader.folders.items())
        return _Scan(found=found, folders=folders)

    def _mount(self, source: str, target: str) -> Mount:
        return Mount(host_path=str(self._host_root / source), container_path=target)


def _libraries(reader: RootedReader) -> dict[str, str]:
    """Name to resolved file, sorted, both inside the root."""
    found: dict[str, str] = {}
    for folder in dict.fromkeys(reader.resolve(f) for f in LIBRARY_FOLDERS):
        if folder is None:
            continue
        for name in reader.names(folder):
            if name not in found and _LIBRARY.fullmatch(name):
                source = _regular(reader, f"{folder}/{name}")
                if source is not None:
                    found[name] = source
    return dict(sorted(found.items()))


def _regular(reader: RootedReader, path: str) -> str | None:
    resolved = reader.resolve(path)
    if resolved is None or not stat.S_ISREG(os.lstat(reader.real(resolved)).st_mode):
        return None
    return resolved
