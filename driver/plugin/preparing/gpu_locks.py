"""One lock a GPU: what concerns one GPU is done in turn, what concerns others goes on beside it.

Whoever waits does so for a bounded time and is told who holds the GPU, in place of a queue that
grows behind a call that hangs. Locks of several GPUs are taken in the order of their UUIDs. They
hold against a second plugin on the node as well.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager

from driver.core.errors import ClaimError
from driver.core.ids import GpuUuid
from driver.ports.state import Locks


class GpuLocks:
    """`patience`: seconds for all locks that are taken at once."""

    def __init__(self, locks: Locks, *, patience: float = 25.0) -> None:
        self._locks = locks
        self._patience = patience

    @contextmanager
    def held(
        self, gpus: Collection[GpuUuid], *, by: str, patience: float | None = None
    ) -> Iterator[None]:
        """ClaimError names the GPU and the holder where it cannot be had in time. `patience`: where
        less is left of it.
        """
        allowed = self._patience if patience is None else min(patience, self._patience)
        deadline = time.monotonic() + allowed
        with ExitStack() as stack:
            for gpu in sorted(set(gpus)):
                self._take(gpu, by, deadline, allowed)
                stack.callback(self._locks.give, _name(gpu))
            yield

    def _take(self, gpu: GpuUuid, by: str, deadline: float, allowed: float) -> None:
        left = max(0.0, deadline - time.monotonic())
        if holder := self._locks.take(_name(gpu), by=by, patience=left):
            raise ClaimError(
                f"{by}: GPU {gpu} is busy with {holder} for more than {allowed:.0f} s;"
                " it is tried again"
            )


def _name(gpu: GpuUuid) -> str:
    return f"gpu {gpu}"
