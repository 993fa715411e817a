"""The simulated GPUs of the workers: per worker one machine state and one fake driver root.

Why it exists: a node of the cluster must look to the driver as a GPU node does: a library, device
nodes, the /proc and /sys entries; and a test must be able to turn its knobs from outside.

Must not know: kind. The folders lie on the host and are mounted at fixed places of the node.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.kind import cache
from hack.kind.paths import State
from hack.kind.shell import Failure
from hack.simcuda import build as simcuda
from hack.simnvml import build as simnvml, driverroot, kmsg
from hack.simnvml.kit import Machine
from hack.simnvml.presets import preset

# Where a node has them; charts and tests name these paths.
NODE_RUN: Final = "/var/lib/tessera-sim/run"
NODE_ROOT: Final = "/var/lib/tessera-sim/root"
PATTERNS: Final = ("*.py", "*.json", "lib/*.[ch]", "smi/*.[ch]")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGpus:
    """`run`: folder of the machine's state; `root`: the driver root. Paths of the host."""

    run: Path
    root: Path

    @classmethod
    def of(cls, state: State, node: str) -> "NodeGpus":
        return cls(run=state.gpus / node / "run", root=state.gpus / node / "root")

    def mounts(self) -> list[dict[str, object]]:
        """For a node of kind's configuration."""
        return [
            {"hostPath": str(self.run), "containerPath": NODE_RUN},
            {"hostPath": str(self.root), "containerPath": NODE_ROOT},
        ]


def key(chosen: str) -> str:
    """Changes with anything that decides how a machine looks or is laid out in memory."""
    folders = (simnvml.HERE, simcuda.HERE)
    files = [p for folder in folders for pattern in PATTERNS for p in folder.glob(pattern)]
    return cache.key(chosen, files=files)


def create(state: State, nodes: Sequence[str], chosen: str) -> None:
    """New machines for these nodes, by `presets_of(chosen)`. The seed is the node's name, so no two
    GPUs share a UUID.

    Folders that exist are emptied and kept: a running node has them mounted.
    """
    for node, own in zip(nodes, presets_of(chosen, len(nodes)), strict=True):
        gpus = NodeGpus.of(state, node)
        for folder in (gpus.run, gpus.root):
            folder.mkdir(parents=True, exist_ok=True)
            _empty(folder)
        machine = Machine.create(gpus.run, own, seed=node)
        driverroot.render(machine, gpus.root, nodes=True)
        machine.close()
        kmsg.make(gpus.run)


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def presets_of(chosen: str, nodes: int) -> list[str]:
    """One preset a node; where several are listed, the last one serves all further nodes."""
    names = chosen.split(",")
    return [names[min(i, len(names) - 1)] for i in range(nodes)]


def check(chosen: str) -> None:
    """Refuse an unknown preset before anything is started for it."""
    try:
        for name in chosen.split(","):
            preset(name)
    except ValueError as error:
        raise Failure(f"argument --preset: {error}") from error


def remove(state: State) -> None:
    if state.gpus.exists():
        shutil.rmtree(state.gpus)


def reboot(state: State, node: str) -> None:
    """What a restart of the machine does to its GPUs: a reset, another boot id, new files."""
    gpus = NodeGpus.of(state, node)
    machine = Machine.open(gpus.run)
    machine.reboot()
    driverroot.render(machine, gpus.root, nodes=True)
    machine.close()
