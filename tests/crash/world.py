"""One simulated node in a folder in memory, and the whole of its state as a value.

Every run begins with the same bytes: the GPUs' state file, the ledger and the CDI folder.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from driver.core.boards import Binding
from driver.core.choices import Choices
from hack.simnvml import driverroot
from hack.simnvml.kit import STATE_FILE, Machine
from hack.simnvml.testing import STATE_VARIABLE

NODE = "node-1"
_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """`boot` is part of the machine; files are named relative to the node's folder."""

    machine: bytes
    boot: str
    files: dict[str, bytes]


@dataclass(kw_only=True)
class World:
    """`make` once, in a child: the parent must not load the library."""

    folder: Path
    boards: Sequence[str]
    choices: Choices = field(default_factory=Choices)
    boot: str = ""

    @property
    def machine(self) -> Path:
        return self.folder / "run"

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def ledger(self) -> Path:
        return self.folder / "plugin/ledger"

    @property
    def locks(self) -> Path:
        return self.folder / "plugin/locks"

    @property
    def cdi(self) -> Path:
        return self.folder / "cdi"

    def make(self) -> str:
        """The boot id."""
        machine = Machine.create(self.machine, self.boards, seed=NODE)
        driverroot.render(machine, self.root, nodes=True)
        return str(machine.get("boot_id"))

    def enter(self) -> None:
        """Children find the machine by the environment."""
        os.environ[STATE_VARIABLE] = str(self.machine)

    def save(self) -> Saved:
        files = {
            str(path.relative_to(self.folder)): path.read_bytes()
            for folder in (self.folder / "plugin", self.cdi)
            for path in folder.rglob("*")
            if path.is_file()
        }
        machine = (self.machine / STATE_FILE).read_bytes()
        return Saved(machine=machine, boot=self.boot, files=files)

    def restore(self, saved: Saved) -> None:
        for folder in (self.folder / "plugin", self.cdi):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        for name, data in saved.files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        (self.machine / STATE_FILE).write_bytes(saved.machine)
        self.boot = saved.boot

    def close(self) -> None:
        shutil.rmtree(self.folder)


def fresh_folder() -> Path:
    """In memory where there is such a place: thousands of runs write and sync files."""
    return Path(tempfile.mkdtemp(prefix="tsr-crash-", dir=_MEMORY if _MEMORY.is_dir() else None))


LATE = Choices(profiles=("1g.10gb",), binding=Binding.PREPARE)
