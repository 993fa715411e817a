"""Generate the protobuf code under api/, or with --check tell whether it still matches.

Why it exists: the generated files are checked in, so that installing needs no compiler; this makes
sure that they are what the .proto files say. The compiler is the grpcio-tools that pyproject.toml
pins: another one would write another minimum version of the protobuf runtime.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCES: Final = "api"
GENERATED: Final = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py")


def pinned_tools() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for requirement in project["optional-dependencies"]["dev"]:
        name, _, version = requirement.partition("==")
        if name == "grpcio-tools":
            return str(version)
    raise SystemExit("pyproject.toml: no grpcio-tools==VERSION among the dev dependencies; pin it")


def require_pinned_tools() -> None:
    installed, pinned = importlib.metadata.version("grpcio-tools"), pinned_tools()
    if installed != pinned:
        raise SystemExit(
            f"grpcio-tools {installed} is installed but pyproject.toml pins {pinned}; "
            f"run: {sys.executable} -m pip install grpcio-tools=={pinned}"
        )


def generate(target: Path) -> None:
    """Relative to the root, so that imports read api.kubelet... and file names stay unique."""
    protos = sorted(str(p.relative_to(ROOT)) for p in (ROOT / SOURCES).rglob("*.proto"))
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", "--proto_path=."),
            *(f"--python_out={target}", f"--pyi_out={target}"),
            *protos,
        ],
        cwd=ROOT,
        check=True,
    )


def generated(root: Path) -> dict[str, bytes]:
    found = (p for pattern in GENERATED for p in (root / SOURCES).rglob(pattern))
    return {str(p.relative_to(root)): p.read_bytes() for p in found}


def drift() -> list[str]:
    """Paths that differ from a fresh run, are missing, or have no .proto file any more."""
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        want = generated(Path(scratch))
    have = generated(ROOT)
    return sorted(p for p in want.keys() | have.keys() if want.get(p) != have.get(p))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, report differences")
    check = parser.parse_args().check
    require_pinned_tools()
    if not check:
        generate(ROOT)
        return 0
    differing = drift()
    for path in differing:
        print(f"{path} does not match its .proto file; run: python hack/protos.py")
    return 1 if differing else 0


if __name__ == "__main__":
    raise SystemExit(main())
