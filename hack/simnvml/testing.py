"""For tests that talk NVML: the library under pynvml's feet, and a machine per test.

Why it exists: pynvml keeps one global library per process and the library maps its state file at
`nvmlInit`, so every test suite needs the same three steps in the same order. In a conftest:

    from hack.simnvml.testing import *  # noqa: F403
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from hack.simnvml import library
from hack.simnvml.build import library_path
from hack.simnvml.kit import Machine

__all__ = ["MachineFactory", "make_machine", "preload", "shut_down"]

STATE_VARIABLE: Final = "SIMNVML_STATE"
UNINITIALIZED: Final = 1

MachineFactory = Callable[..., Machine]


def preload() -> Path:
    """Builds and loads the library: pynvml's CDLL("libnvidia-ml.so.1") then finds it by SONAME."""
    library.load()
    return library_path()


def shut_down() -> None:
    """Ends every open nvmlInit of this process, even where rules make nvmlShutdown fail."""
    shutdown = library.load().nvmlShutdown
    while shutdown() != UNINITIALIZED:
        pass


@pytest.fixture
def make_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Machine]]:
    """Makes machines in fresh directories; the last made is the one that `nvmlInit` finds.

    Child processes inherit SIMNVML_STATE. The test itself calls nvmlInit and nvmlShutdown.
    """
    preload()
    made: list[Machine] = []

    def make(
        what: str | Sequence[str] = "h100x2", *, seed: str = "node", driver: str | None = None
    ) -> Machine:
        path = tmp_path / f"machine-{len(made)}"
        machine = Machine.create(path, what, seed=seed, driver=driver)
        monkeypatch.setenv(STATE_VARIABLE, str(path))
        made.append(machine)
        return machine

    yield make
    for machine in made:
        machine.close()
