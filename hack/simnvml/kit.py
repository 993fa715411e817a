"""Builds and drives a simulated machine: the kit of tests, demos and `simctl`.

Why it exists: a test should say "GPU 2 raises Xid 79" and not know of files, locks or ctypes. All
state is in one file in a directory; any number of processes, in any container that mounts the
directory, see the same machine and each other's changes at once.

Must not know: the driver under test, NVML's own functions.
"""

from __future__ import annotations

import ctypes as c
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from hack.simnvml import library as lib
from hack.simnvml.assemble import FieldValue, assemble
from hack.simnvml.boards import Board
from hack.simnvml.gpu import Gpu, Instance, peek, poke_all
from hack.simnvml.presets import boot_id, preset

STATE_FILE: Final = "state"
MAX_GPU: Final = 16
MAX_ROWS: Final = 16 * 16 * 8
MAX_CALLS: Final = 256
MAX_RULES: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A finished NVML call. `at` is CLOCK_MONOTONIC at its end, in seconds; `gpu` the slot."""

    symbol: str
    gpu: int | None
    ret: int
    pid: int
    at: float

    @classmethod
    def of(cls, row: lib.CallStruct) -> Call:
        gpu = None if row.gpu < 0 else row.gpu
        return cls(
            symbol=row.symbol.decode(), gpu=gpu, ret=row.ret, pid=row.pid, at=row.at_ns / 1e9
        )


class Rule:
    """A fault that is in force until `clear()`, or until the end of a `with` block."""

    def __init__(self, machine: Machine, identifier: int) -> None:
        self._machine = machine
        self.id = identifier

    def clear(self) -> None:
        """Takes the fault away. Harmless when it has already spent its times."""
        self._machine.clear_rules(self.id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.clear()


class Machine:
    """One simulated node. `path` is its state directory: mount it, or name it in SIMNVML_STATE."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self._lib = lib.load()
        self._handle = handle

    @classmethod
    def create(
        cls,
        path: Path | str,
        preset_or_boards: str | Sequence[str] = "dgx-h100",
        *,
        seed: str = "node",
        driver: str | None = None,
    ) -> Machine:
        """A fresh machine in `path`; one that was there goes on only in processes that hold it."""
        where = Path(path)
        plan = preset(preset_or_boards)
        where.mkdir(parents=True, exist_ok=True)
        handle = lib.load().sim_create(str(where / STATE_FILE).encode())
        if not handle:
            raise OSError(f"cannot create {where / STATE_FILE}; is the directory writable?")
        machine = cls(where, handle)
        assemble(machine, plan, seed=seed, driver=driver)
        return machine

    @classmethod
    def open(cls, path: Path | str) -> Machine:
        """The machine that somebody created in `path`."""
        where = Path(path)
        handle = lib.load().sim_open(str(where / STATE_FILE).encode())
        if not handle:
            raise FileNotFoundError(
                f"no machine of this version in {where}; create one with python -m hack.simnvml"
            )
        return cls(where, handle)

    def close(self) -> None:
        """Unmaps the machine; it lives on in its file."""
        self._lib.sim_close(self._handle)
        self._handle = 0

    # -- what it is made of

    @property
    def gpus(self) -> list[Gpu]:
        """Those that are plugged in, by slot; slots keep their number when others are unplugged."""
        return [gpu for slot in range(MAX_GPU) if (gpu := self.gpu(slot)).get("present")]

    def gpu(self, slot: int) -> Gpu:
        """The GPU of that slot, plugged in or not."""
        if not 0 <= slot < MAX_GPU:
            raise ValueError(f"slot {slot} is not in 0..{MAX_GPU - 1}")
        return Gpu(self._lib, self._handle, slot)

    def set(self, **fields: FieldValue) -> None:
        """Sets plain fields of the machine: driver, absent, require_root, gi_ids_random, ..."""
        poke_all(self._lib, self._handle, -1, fields)

    def get(self, field: str) -> int | str:
        """One plain field of the machine."""
        return peek(self._lib, self._handle, -1, field)

    def add_profile(self, gpu: int, board: Board, position: int) -> None:
        """Gives a GPU one of a board's profiles."""
        p = board.profiles[position]
        figures = (p.id, p.slices, p.count, p.sm, p.ce, p.dec, p.enc, p.jpeg, p.ofa)
        result = self._lib.sim_profile(
            *(self._handle, gpu, p.index, (c.c_uint32 * 9)(*figures), p.memory_mib),
            *(f"MIG {p.name}".encode(), (c.c_uint32 * len(p.starts))(*p.starts)),
            *(len(p.starts), p.size),
        )
        if result:
            raise ValueError(f"the library refused profile {p.name} of {board.key}: {result}")

    def snapshot(self) -> dict[int, list[Instance]]:
        """Every instance by slot, at one moment."""
        rows = (lib.InstanceStruct * MAX_ROWS)()
        count = self._lib.sim_instances(self._handle, rows, MAX_ROWS)
        found: dict[int, list[Instance]] = {}
        for row in rows[:count]:
            found.setdefault(row.gpu, []).append(Instance.of(row))
        return found

    # -- what befalls it

    def rule(
        self,
        glob: str,
        *,
        ret: int = 0,
        gpu: int | None = None,
        times: int | None = None,
        delay_ms: int = 0,
        probability: float = 1.0,
        after: int = 0,
        seed: int = 1,
    ) -> Rule:
        """Calls whose symbol matches `glob` answer `ret` after `delay_ms`; the first rule wins.

        `ret=0` with a delay is a slow call that works; `library.RULE_CRASH` ends the caller inside
        the call. `times` bounds the hits, `after` lets that many calls pass first.
        """
        struct = lib.RuleStruct(
            symbol=glob.encode(),
            gpu=-1 if gpu is None else gpu,
            ret=ret,
            left=times or 0,
            delay_ms=delay_ms,
            after=after,
            per_million=round(probability * 1_000_000),
            seed=seed,
        )
        identifier = self._lib.sim_rule(self._handle, c.byref(struct))
        if identifier < 0:
            raise RuntimeError(f"all {MAX_RULES} fault rules are in use; clear some")
        return Rule(self, identifier)

    def rules(self) -> list[dict[str, int | str]]:
        """The rules in force, in order."""
        rows = (lib.RuleStruct * MAX_RULES)()
        count = self._lib.sim_rules(self._handle, rows, MAX_RULES)
        names = ("id", "gpu", "ret", "left", "delay_ms", "after", "per_million", "hits")
        return [
            {"symbol": row.symbol.decode()} | {name: int(getattr(row, name)) for name in names}
            for row in rows[:count]
        ]

    def clear_rules(self, identifier: int = 0) -> None:
        """Takes away one rule, or all."""
        self._lib.sim_rule_clear(self._handle, identifier)

    def driver_loaded(self, loaded: bool) -> None:
        """Loads or unloads the kernel driver."""
        self.set(driver_loaded=int(loaded))

    def reboot(self) -> None:
        """Every GPU is reset and the boot id changes; MIG mode survives where it is sticky."""
        for gpu in self.gpus:
            if not gpu.get("mig_needs_reset"):
                gpu.set(mig_pending=0)
            gpu.reset()
        self.set(boot_id=boot_id(str(self.get("boot_id")), 1))

    # -- what was asked of it

    def calls(self, glob: str = "*") -> int:
        """How often matching NVML functions were entered, by all processes."""
        return int(self._lib.sim_calls(self._handle, glob.encode()))

    def last_calls(self) -> list[Call]:
        """The last finished calls (256 at most), oldest first."""
        rows = (lib.CallStruct * MAX_CALLS)()
        count = self._lib.sim_call_log(self._handle, rows, MAX_CALLS)
        return [Call.of(row) for row in rows[:count]]

    def wait_calls(self, glob: str, at_least: int, *, timeout: float = 5.0) -> None:
        """Returns as soon as matching functions were entered `at_least` times in all."""
        # In slices, so that an interrupt of this thread gets through.
        deadline = time.monotonic() + timeout
        while True:
            rest = deadline - time.monotonic()
            slice_ms = max(0, min(500, round(rest * 1000)))
            if not self._lib.sim_wait_calls(self._handle, glob.encode(), at_least, slice_ms):
                return
            if rest <= 0:
                raise TimeoutError(
                    f"{glob} was called {self.calls(glob)} times in {timeout} s, not {at_least}"
                )
