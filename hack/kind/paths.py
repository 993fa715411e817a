"""Where the test cluster keeps things: what may be lost (cache) and what belongs to a run (state).

Why it exists: clean-up is only complete if nothing is written anywhere else.

Must not know: what the files mean. Both roots can be moved by an environment variable, so that a
test or a second cluster never meets the first one's processes.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
REPO: Final = HERE.parent.parent


def _root(variable: str, xdg: str, default: str) -> Path:
    if own := os.environ.get(variable):
        return Path(own).absolute()
    base = os.environ.get(xdg) or Path.home() / default
    return Path(base) / "tessera" / "kind"


def cache_root() -> Path:
    """Content-keyed results of slow steps; deleting it costs time and nothing else."""
    return _root("TESSERA_KIND_CACHE", "XDG_CACHE_HOME", ".cache")


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The files of one cluster and its engine."""

    root: Path

    @classmethod
    def default(cls) -> "State":
        return cls(root=_root("TESSERA_KIND_STATE", "XDG_STATE_HOME", ".local/state"))

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def engine(self) -> Path:
        return self.root / "engine"

    @property
    def engine_record(self) -> Path:
        return self.root / "engine.json"

    @property
    def cluster_record(self) -> Path:
        return self.root / "cluster.json"

    @property
    def kubeconfig(self) -> Path:
        return self.root / "kubeconfig"

    @property
    def gpus(self) -> Path:
        return self.root / "gpus"

    @property
    def audit(self) -> Path:
        return self.root / "audit"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def cgroup(self) -> str:
        """Name of the cgroup under which the engine puts every container. Unique per state root."""
        return "tessera-kind-" + hashlib.sha256(str(self.root).encode()).hexdigest()[:8]
