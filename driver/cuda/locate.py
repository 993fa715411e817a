"""Where libcuda is below a driver root."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from driver.core.errors import TesseraError

SONAME: Final = "libcuda.so.1"
_FOLDERS: Final = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
)


class CudaMissing(TesseraError):
    """Names every folder that was searched."""


def find_library(root: Path) -> Path:
    """The first of the folders has it that NVML's library is searched in as well."""
    for folder in _FOLDERS:
        if (found := root / folder / SONAME).exists():
            return found
    raise CudaMissing(
        f"{SONAME} is in none of {', '.join(_FOLDERS)} below {root}; install the NVIDIA driver"
        " there, or set driver_root"
    )
