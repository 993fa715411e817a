"""Driver roots as a driver package lays them out."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from driver.core.ids import GpuUuid
from driver.core.snapshot import GpuFacts, MigState, PciAddress

VERSION = "580.95.05"
TRIPLE = "usr/lib/x86_64-linux-gnu"
NODES = {"nvidiactl": 255, "nvidia-uvm": 0, "nvidia-uvm-tools": 1, "nvidia0": 0, "nvidia3": 3}


def gpu(minor: int) -> GpuFacts:
    return GpuFacts(
        uuid=GpuUuid(f"GPU-{minor:08x}"),
        index=0,
        minor=minor,
        pci=PciAddress(domain=0, bus=minor + 1, device=0),
        product="H100",
        memory=1,
        mig=MigState(capable=True),
    )


def add_libraries(
    root: Path, names: Iterable[str] = ("libcuda", "libnvidia-ml"), *, folder: str = TRIPLE
) -> Path:
    where = root / folder
    where.mkdir(parents=True, exist_ok=True)
    for name in names:
        (where / f"{name}.so.{VERSION}").touch()
        (where / f"{name}.so.1").unlink(missing_ok=True)
        (where / f"{name}.so.1").symlink_to(f"{name}.so.{VERSION}")
    return where


def age(root: Path) -> None:
    """The tree was made long ago, so what was read of it may be kept."""
    for folder in (root, *(p for p in root.rglob("*") if p.is_dir())):
        os.utime(folder, (1_000_000_000, 1_000_000_000))


def make_node(path: Path, minor: int, *, major: int = 195) -> None:
    try:
        os.mknod(path, 0o20666, os.makedev(major, minor))
    except PermissionError:
        pytest.skip("making device nodes needs root")


def add_nodes(dev: Path) -> None:
    dev.mkdir(parents=True, exist_ok=True)
    for name, minor in NODES.items():
        make_node(dev / name, minor)
