"""Where libcuda is below a driver root."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from driver.core import rooted
from driver.core.errors import TesseraError

SONAME: Final = "libcuda.so.1"


class CudaMissing(TesseraError):
    """Names every folder that was searched."""


def find_library(root: Path) -> Path:
    """In the folders that NVML's library is searched in as well, without leaving the root."""

    def read_link(folder: str, name: str) -> str | None:
        path = root / folder / name
        return str(path.readlink()) if path.is_symlink() else "" if path.exists() else None

    found = rooted.find_library(SONAME, read_link)
    if found is not None:
        return root / found
    raise CudaMissing(
        f"{SONAME} is in none of {', '.join(rooted.LIBRARY_FOLDERS)} below {root}; install the"
        " NVIDIA driver there, or set driver_root"
    )
