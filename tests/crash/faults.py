"""Counts the steps of a plugin that change or read something, and lets one of them go wrong.

A step is a system call of a write, a reading of the GPU, or one NVML call of a change. Killing is
done by the kernel, not by an exception: no `finally` runs.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

import pynvml

from driver.nvml.calls import translate
from driver.ports.nvml import MigLibrary
from driver.state.atomic import Files

CALLS = ("open_folder", "lock", "create", "write", "chmod", "fsync", "close", "rename", "unlink")
CHANGES = ("set_mode", "create", "create_compute", "destroy_compute", "destroy")


class Kind(StrEnum):
    KILL_BEFORE = "killed before"
    KILL_AFTER = "killed after"
    TORN = "killed inside"
    FAIL = "failed"
    FAIL_ON = "failed from"
    """And with it all later steps of NVML, or of files: what undoes fails too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`at`: number of the step, from 0. `code`: errno or NVML code of a failure."""

    at: int
    kind: Kind
    code: int = 0

    @property
    def kills(self) -> bool:
        return self.kind not in {Kind.FAIL, Kind.FAIL_ON}

    def __str__(self) -> str:
        return f"{self.kind} step {self.at}" + (f" with {self.code}" if self.code else "")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Steps:
    """`names`: what was done while armed. For several threads."""

    def __init__(self, fault: Fault | None = None, *, armed: bool = False) -> None:
        self.names: list[str] = []
        self.fault = fault
        self.armed = armed
        self.happened = False
        self._lock = threading.Lock()

    def run(
        self,
        name: str,
        call: Callable[[], Any],
        *,
        fail: Callable[[int], Any],
        torn: Callable[[], Any] | None = None,
    ) -> Any:
        """`call()`, unless the fault is due: then `fail(code)`, or `torn()` and the end."""
        fault = self._due(name)
        if fault is None:
            return call()
        if not fault.kills:
            return fail(fault.code)
        if fault.kind is Kind.TORN and torn is not None:
            torn()
        elif fault.kind is Kind.KILL_AFTER:
            call()
        die()
        raise AssertionError("a killed process went on")

    def _due(self, name: str) -> Fault | None:
        with self._lock:
            if not self.armed:
                return None
            self.names.append(name)
            fault, at = self.fault, len(self.names) - 1
            if fault is None or at < fault.at:
                return None
            if at > fault.at and not (fault.kind is Kind.FAIL_ON and self._is_like(name, fault)):
                return None
            self.happened = True
            return fault

    def _is_like(self, name: str, fault: Fault) -> bool:
        return is_nvml(name) == is_nvml(self.names[fault.at])


def is_nvml(name: str) -> bool:
    return name.startswith("NVML ")


class CountedFiles(Files):
    def __init__(self, steps: Steps, where: str) -> None:
        self.steps = steps
        self.where = where


def _counted(name: str) -> Any:
    real = getattr(Files, name)

    def call(self: CountedFiles, *args: Any) -> Any:
        done = partial(real, self, *args)

        def fail(code: int) -> None:
            if name == "close":
                done()  # the kernel closes the file, whatever it says
            raise OSError(code, os.strerror(code))

        torn = None
        if name == "write":
            torn = partial(real, self, args[0], args[1][: len(args[1]) // 2])
        return self.steps.run(f"{self.where} {name}", done, fail=fail, torn=torn)

    return call


for _name in CALLS:
    setattr(CountedFiles, _name, _counted(_name))


class CountedMig:
    """A `MigLibrary`: a reading is one step, a change has the steps of its NVML calls."""

    def __init__(self, library: MigLibrary, steps: Steps) -> None:
        self._library = library
        self._steps = steps
        self._inside = threading.local()
        self._find = pynvml._nvmlGetFunctionPointer
        pynvml._nvmlGetFunctionPointer = self._found

    def close(self) -> None:
        pynvml._nvmlGetFunctionPointer = self._find

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._library, name)

        def change(*args: Any, **kwargs: Any) -> Any:
            self._inside.changing = True
            try:
                return method(*args, **kwargs)
            finally:
                self._inside.changing = False

        def read(*args: Any, **kwargs: Any) -> Any:
            def fail(code: int) -> None:
                raise translate(code, call=name, gpu="injected")

            return self._steps.run(f"NVML {name}", partial(method, *args, **kwargs), fail=fail)

        return change if name in CHANGES else read

    def _found(self, name: str) -> Any:
        """Stands under every function of pynvml in this process."""
        function = self._find(name)
        if not getattr(self._inside, "changing", False):
            return function
        return lambda *args: self._steps.run(
            f"NVML {name}", partial(function, *args), fail=lambda code: code
        )
