"""Calls that may never return, made where they can be given up.

Why it exists: a process in a driver that hangs cannot be ended, and neither can a thread. So each
look at the GPUs is made in another thread; who asked waits for it for a bounded time, then goes on
and says so. The thread is kept for the next look, unless it hangs: to make one costs more than many
a look. What is given up is counted, and there is a bound: with that many threads hanging nothing
new is tried.

Must not know what is asked.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, Generic, TypeVar

from driver.core.errors import CallHangs

T = TypeVar("T")

_NVML_TIMEOUT: Final = 10


class _Work(Generic[T]):
    def __init__(self, name: str, work: Callable[[], T]) -> None:
        self.name = name
        self._work = work
        self._done = threading.Event()
        self._result: list[T] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._result.append(self._work())
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            self._error = error
        finally:
            self._done.set()

    def returned(self, limit: float = 0.0) -> bool:
        return self._done.wait(limit)

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._result[0]


class _Worker:
    """A thread that does one work after the other; it ends when nobody can ask it any more."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=_serve, args=(self._asked,), name="nvml-call", daemon=True).start()
        # The thread must not hold the worker, or that would live for ever.
        weakref.finalize(self, self._asked.put, None)

    def do(self, work: Callable[[], None]) -> None:
        self._asked.put(work)


def _serve(asked: SimpleQueue[Callable[[], None] | None]) -> None:
    while (work := asked.get()) is not None:
        work()
        del work  # what it gave may be large, and the next may come late


class Watchdog:
    """For one thread that asks. `hanging`: the names of what was given up and is still inside."""

    def __init__(self, *, limit: float, most: int = 2) -> None:
        """`limit`: seconds; `most`: how many threads may hang before nothing new is tried."""
        self._limit = limit
        self._most = most
        self._given_up: list[_Work[object]] = []
        self._worker: _Worker | None = None

    @property
    def hanging(self) -> tuple[str, ...]:
        self._given_up = [each for each in self._given_up if not each.returned()]
        return tuple(each.name for each in self._given_up)

    def call(self, work: Callable[[], T], *, name: Callable[[], str]) -> T:
        """What `work` gives or raises. CallHangs after the limit, or at once if too many hang.

        `name`: where the work is, asked when it is given up.
        """
        hanging = self.hanging
        if len(hanging) >= self._most:
            raise _hangs(hanging[-1], f"{len(hanging)} calls hang, none is added")
        made = _Work("", work)
        self._worker = self._worker or _Worker()
        self._worker.do(made.run)
        if not made.returned(self._limit):
            self._worker = None
            made.name = name()
            self._given_up.append(made)  # type: ignore[arg-type]  # its result is never taken
            raise _hangs(made.name, f"it has not returned for {self._limit:g} s; see dmesg")
        return made.result()


def _hangs(where: str, text: str) -> CallHangs:
    return CallHangs(text, call="NVML", code=_NVML_TIMEOUT, gpu=where)
