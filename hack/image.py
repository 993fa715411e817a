"""Builds Tessera's image from the Dockerfile and loads it into the nodes of the test cluster.

Where the engine has no way to a package index (our own one, in its private network), the wheels
come with the build context: they are fetched here, by the hashed lock file, for the base image's
Python, and kept below the home folder under the hash of the lock file.

Usage: python -m hack.image [--no-load]; prints the image's name.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

REPO: Final = Path(__file__).resolve().parent.parent
LOCK: Final = REPO / "hack" / "requirements.lock"
WHEELS: Final = REPO / "build" / "wheels"
CACHE: Final = Path.home() / ".cache" / "tessera" / "wheels"
IMAGE: Final = "localhost/tessera:e2e"
SOURCES: Final = ("driver", "api", "pyproject.toml", "hack/requirements.lock", "Dockerfile")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hack.image", description=__doc__)
    parser.add_argument("--no-load", action="store_true", help="build only")
    load = not parser.parse_args().no_load
    base = _kind("base-image", capture=True)
    label = f"tessera.sources={source_key()}.{base}"
    if label not in _labels():
        _collect_wheels(base)
        _kind(
            "exec", "--", "docker", "build", "--quiet", "--build-arg", f"BASE={base}",
            "--label", label, "-t", IMAGE, str(REPO),
            environment={**os.environ, "DOCKER_BUILDKIT": "0"},
        )  # fmt: skip
    if load:
        _kind("load", IMAGE)
    print(IMAGE)


def source_key() -> str:
    """A hash of all that goes into the image: same sources, same image, no build."""
    digest = hashlib.sha256()
    for source in SOURCES:
        root = REPO / source
        files = sorted(root.rglob("*.py")) if root.is_dir() else [root]
        for file in files:
            digest.update(f"{file.relative_to(REPO)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def _labels() -> str:
    command = (
        "exec", "--", "docker", "image", "inspect", "--format", "{{json .Config.Labels}}", IMAGE
    )  # fmt: skip
    return _kind(*command, capture=True, check=False)


def _collect_wheels(base: str) -> None:
    """Third parties from the cache, ours fresh, side by side in the build context."""
    version = _kind(
        "exec", "--", "docker", "run", "--rm", "--network=none", base,
        "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])",
        capture=True,
    )  # fmt: skip
    kept = CACHE / f"{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:16]}-{version}"
    if not kept.is_dir():
        partial = kept.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        _run(
            sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
            "--require-hashes", "--only-binary=:all:", "--python-version", version,
            "-d", str(partial), "-r", str(LOCK),
        )  # fmt: skip
        partial.rename(kept)
    shutil.rmtree(WHEELS, ignore_errors=True)
    shutil.copytree(kept, WHEELS)
    _run(
        sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check",
        "--no-deps", "-w", str(WHEELS), str(REPO),
    )  # fmt: skip


def _kind(
    *words: str,
    capture: bool = False,
    check: bool = True,
    environment: dict[str, str] | None = None,
) -> str:
    command = (sys.executable, "-m", "hack.kind", *words)
    return _run(*command, capture=capture, check=check, environment=environment)


def _run(
    *command: str,
    capture: bool = False,
    check: bool = True,
    environment: dict[str, str] | None = None,
) -> str:
    done = subprocess.run(
        command,
        cwd=REPO,
        check=check,
        text=True,
        env=environment,
        stdout=subprocess.PIPE if capture else None,
        stderr=None if check else subprocess.DEVNULL,
    )
    return (done.stdout or "").strip()


if __name__ == "__main__":
    main()
