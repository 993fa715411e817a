"""Runs active probes: starts the child, waits at most so long, and says how it ended.

A child that does not end even when killed sits in the kernel, in a call to the GPU. It is left
behind and counted; nobody waits for it, and a bound on the number keeps a sick node from filling up
with such processes. They are reaped when they end, which a reset of the GPU often brings about.

Must not know what an outcome means, nor when a probe is due.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import Final

from driver.core.errors import TesseraError
from driver.core.health.probe import (
    Crashed,
    Interrupted,
    LibraryUnusable,
    Outcome,
    ProbeTarget,
    Saturated,
    Unresponsive,
)
from driver.core.ids import GpuUuid
from driver.cuda.answer import outcome_of
from driver.cuda.process import Child, ChildProcess

_PACKAGES: Final = str(Path(__file__).resolve().parents[2])
"""Where the package `driver` lies. Of what lies beside it the child imports nothing."""
_START: Final = (
    "import sys; sys.path.insert(0, sys.argv[1])\n"
    "from driver.cuda.child import main; main(sys.argv[2:])"
)
_STEERING: Final = ("CUDA_", "LD_", "NVIDIA_", "PYTHON")
"""Beginnings of variables that steer CUDA, the loader or Python: the child gets ours only."""
_MOST_OF_A_GPU: Final = 2
"""Children left behind on one GPU. Two tell that it is unresponsive; more would tell nothing new,
and use up what the other GPUs need."""
_ALONE: Final = 10
"""Seconds after the deadline when a child ends itself, had we gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`deadline`: seconds for a probe; the first start of CUDA on a large node takes several.
    `grace`: for a killed child to end. `abandoned`: children left behind, on the whole node.
    `parallel`: probes at once; further ones wait for their turn.
    """

    deadline: float = 30.0
    grace: float = 2.0
    abandoned: int = 4
    parallel: int = 2

    def __post_init__(self) -> None:
        if self.deadline <= 0 or self.grace <= 0 or not 0 < self.parallel <= self.abandoned:
            raise ValueError(f"need deadline, grace > 0 and 0 < parallel <= abandoned: {self}")


Starter = Callable[[Sequence[str], Mapping[str, str]], Child]


@dataclass(slots=True, eq=False)
class _Run:
    gpu: GpuUuid | None
    child: Child | None = None
    interrupted: bool = False


class Prober:
    """Safe for several threads; each probe blocks its caller for `deadline + grace` at most, and
    for as long again as others go first.
    """

    def __init__(
        self,
        *,
        library: Callable[[], Path],
        limits: Limits | None = None,
        start: Starter = ChildProcess,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`library`: finds libcuda anew each time, as a driver may be installed late; it raises
        TesseraError. `environment`: the child's, before it is cleaned; our own when left out.
        """
        self._library = library
        self._limits = limits if limits is not None else Limits()
        self._start = start
        self._environment = environment
        self._turns = BoundedSemaphore(self._limits.parallel)
        self._lock = Lock()
        self._runs: list[_Run] = []
        self._left: list[tuple[GpuUuid | None, Child]] = []

    def probe(self, target: ProbeTarget) -> Outcome:
        """Computes on the device, which must not be in use."""
        try:
            library = self._library()
        except TesseraError as error:
            return LibraryUnusable(detail=str(error))
        run = _Run(gpu=target.scope.gpu)
        with self._lock:
            self._runs.append(run)
        try:
            with self._turns:
                return self._admitted(run, target, library)
        finally:
            with self._lock:
                self._runs.remove(run)

    def abandoned(self) -> dict[GpuUuid | None, int]:
        """How many children are left behind, by GPU; those that have ended meanwhile are reaped."""
        with self._lock:
            self._reap()
            return dict(Counter(gpu for gpu, _ in self._left))

    def interrupt(self, gpu: GpuUuid | None = None) -> None:
        """Ends the probes of a GPU, or all: somebody else needs it, or we stop. They answer soon
        as `Interrupted`. Those of other callers that start later are not concerned.
        """
        with self._lock:
            for run in self._runs:
                if gpu is None or run.gpu == gpu:
                    run.interrupted = True
                    if run.child is not None:
                        run.child.kill()

    def _admitted(self, run: _Run, target: ProbeTarget, library: Path) -> Outcome:
        command = _command(library, self._limits)
        with self._lock:
            self._reap()
            if run.interrupted:
                return Interrupted()
            if full := self._full(run.gpu):
                return Saturated(detail=full)
            try:
                run.child = self._start(command, self._clean(target, library))
            except OSError as error:
                return Crashed(detail=f"cannot start a probe: {error.strerror or error}")
            child = run.child
        return self._await(run, child)

    def _await(self, run: _Run, child: Child) -> Outcome:
        ended = child.wait(self._limits.deadline)
        late = ended is None
        if ended is None:
            child.kill()
            ended = child.wait(self._limits.grace)
        with self._lock:
            run.child = None  # its number may be another process's from now on
            if ended is None:
                child.leave()
                self._left.append((run.gpu, child))
        if run.interrupted and ended is not None:
            return Interrupted()
        if ended is None or late:
            return Unresponsive(seconds=self._limits.deadline, ended=ended is not None)
        return outcome_of(ended)

    def _full(self, gpu: GpuUuid | None) -> str:
        """Why not to start one more; empty: there is room. The lock is held."""
        here = sum(1 for owner, _ in self._left if owner == gpu)
        if here >= _MOST_OF_A_GPU:
            return f"{here} earlier probes of this GPU hang and cannot be killed"
        running = sum(1 for run in self._runs if run.child is not None)
        if self._left and len(self._left) + running >= self._limits.abandoned:
            return (
                f"{len(self._left)} earlier probes hang and cannot be killed, and at most"
                f" {self._limits.abandoned} may; reset the GPU or restart the node"
            )
        return ""

    def _reap(self) -> None:
        self._left = [(gpu, child) for gpu, child in self._left if not child.reap()]

    def _clean(self, target: ProbeTarget, library: Path) -> dict[str, str]:
        """The driver finds its own parts, as the compiler of PTX, beside libcuda. What it compiles
        is not kept: the disk may be read-only, and the compiler is part of what is probed.
        """
        given = os.environ if self._environment is None else self._environment
        kept = {key: value for key, value in given.items() if not key.startswith(_STEERING)}
        return kept | {
            "CUDA_VISIBLE_DEVICES": target.uuid,
            "CUDA_CACHE_DISABLE": "1",
            "LD_LIBRARY_PATH": str(library.parent),
        }


def _command(library: Path, limits: Limits) -> list[str]:
    request = {
        "library": str(library),
        "seed": secrets.randbits(32),
        "limit": int(limits.deadline + limits.grace) + _ALONE,
    }
    # Isolated and without site: nothing but the standard library and what the child names.
    return [sys.executable, "-I", "-S", "-c", _START, _PACKAGES, json.dumps(request)]
