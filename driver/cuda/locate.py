"""Where libcuda is below a driver root."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from driver import rooted

SONAME: Final = "libcuda.so.1"


def find_library(root: Path) -> Path:
    """NotInDriverRoot names every folder that was searched."""
    return rooted.find_library(root, SONAME)
