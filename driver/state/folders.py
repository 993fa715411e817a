"""Folders of ours, made where they are missing.

Why it exists: a file is only as durable as the folder's own entry in its parent.
"""

from __future__ import annotations

import os
from pathlib import Path

from driver.state.failures import state_error


def make_folder(path: Path, *, mode: int) -> bool:
    """Durable when it returns; whether it had to be made. `mode` holds whatever the umask is."""
    try:
        if path.is_dir():
            return False
        missing = [p for p in (path, *path.parents) if not p.exists()]
        for folder in reversed(missing):
            folder.mkdir(mode=mode, exist_ok=True)
            folder.chmod(mode)
            _sync(folder.parent)
        if not missing:
            path.mkdir(mode=mode)  # something else is in the way: let the system say what
    except OSError as error:
        raise state_error("cannot make the folder", path, error) from error
    return True


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
