"""Compiles the simulated CUDA driver with gcc, as the simulated NVML is; see its build module."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from hack.simnvml.build import COMMON, HERE as SIMNVML, REPOSITORY

HERE: Final = Path(__file__).resolve().parent
DEFAULT_OUT: Final = REPOSITORY / "build" / "simcuda"
LIBRARY: Final = "libcuda.so.1"
STAMP: Final = "sources.sha256"
FLAGS: Final = (
    *COMMON,
    "-fPIC",
    "-shared",
    "-pthread",
    "-fvisibility=hidden",
    f"-Wl,-soname,{LIBRARY}",
    "-Wl,-Bsymbolic",  # the simulated NVML may be loaded beside it, with the same MACHINE
)
MACHINE: Final = ("calls.c", "state.c")
"""Of the simulated NVML: what both libraries are made of."""


def library_path() -> Path:
    """The library to use: SIMCUDA_LIBRARY where there is no compiler, as in a pod; else built."""
    given = os.environ.get("SIMCUDA_LIBRARY")
    return Path(given) if given else build()


def build(out_dir: Path | None = None) -> Path:
    """The path of an up-to-date library."""
    out = out_dir if out_dir is not None else DEFAULT_OUT
    library = out / LIBRARY
    stamp = out / STAMP
    wanted = _fingerprint()
    if library.exists() and stamp.exists() and stamp.read_text() == wanted:
        return library
    if shutil.which("gcc") is None:
        raise RuntimeError(
            "gcc is not installed; the simulated CUDA driver needs it (apt install gcc)"
        )
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".build-") as scratch:
        fresh = Path(scratch)
        _compile(fresh / LIBRARY)
        (fresh / STAMP).write_text(wanted)
        for name in (LIBRARY, STAMP):  # the stamp last: it says that the library is there
            (fresh / name).replace(out / name)
    return library


def _sources() -> list[Path]:
    return [*sorted((HERE / "lib").glob("*.c")), *(SIMNVML / "lib" / name for name in MACHINE)]


def _fingerprint() -> str:
    digest = hashlib.sha256(repr(FLAGS).encode())
    headers = [*sorted((HERE / "lib").glob("*.h")), *sorted((SIMNVML / "lib").glob("*.h"))]
    for path in (*_sources(), *headers):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _compile(target: Path) -> None:
    sources = [str(path) for path in _sources()]
    command = [os.environ.get("CC", "gcc"), *FLAGS, *sources, "-o", str(target)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"cannot build {target.name}:\n{result.stderr}")
