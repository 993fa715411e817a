"""Compiles the simulated NVML with gcc.

Why it exists: the library is never shipped, so whoever runs tests or a demo needs it built first,
without a build system of its own. Nothing here knows what the sources mean.

The result is rebuilt only when a source changed, and put in place by rename: processes that have
the old library mapped keep it, and two builds at once cannot mix their output.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
REPOSITORY: Final = HERE.parent.parent
DEFAULT_OUT: Final = REPOSITORY / "build" / "simnvml"
LIBRARY: Final = "libnvidia-ml.so.1"
SMI: Final = "nvidia-smi"
STAMP: Final = "sources.sha256"

COMMON: Final = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror")
LIBRARY_FLAGS: Final = (
    "-fPIC",
    "-shared",
    "-pthread",
    "-fvisibility=hidden",
    f"-Wl,-soname,{LIBRARY}",
    "-Wl,-Bsymbolic",  # two copies may be loaded at once: each must call itself
)


def library_path() -> Path:
    """The library to use: SIMNVML_LIBRARY where there is no compiler, as in a pod; else built."""
    given = os.environ.get("SIMNVML_LIBRARY")
    return Path(given) if given else build()


def build(out_dir: Path | None = None) -> Path:
    """The path of an up-to-date library; the listing tool lies beside it as `nvidia-smi`."""
    out = out_dir if out_dir is not None else DEFAULT_OUT
    library = out / LIBRARY
    wanted = _fingerprint()
    stamp = out / STAMP
    if library.exists() and stamp.exists() and stamp.read_text() == wanted:
        return library
    if shutil.which("gcc") is None:
        raise RuntimeError("gcc is not installed; the simulated NVML needs it (apt install gcc)")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".build-") as scratch:
        fresh = Path(scratch)
        _compile((*LIBRARY_FLAGS, *_sources("lib")), fresh / LIBRARY)
        _compile((*_sources("smi"), "-ldl"), fresh / SMI)
        (fresh / STAMP).write_text(wanted)
        for name in (LIBRARY, SMI, STAMP):  # the stamp last: it says that the others are there
            (fresh / name).replace(out / name)
    return library


def _sources(folder: str) -> list[str]:
    return [str(path) for path in sorted((HERE / folder).glob("*.c"))]


def _fingerprint() -> str:
    digest = hashlib.sha256(repr((COMMON, LIBRARY_FLAGS)).encode())
    for path in sorted((*HERE.glob("lib/*.[ch]"), *HERE.glob("smi/*.[ch]"))):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _compile(arguments: Sequence[str], target: Path) -> None:
    command = [os.environ.get("CC", "gcc"), *COMMON, *arguments, "-o", str(target)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"cannot build {target.name} of the simulated NVML:\n{result.stderr}")
