"""One lock a GPU: what concerns one GPU is done in turn, what concerns others goes on beside it.

Whoever waits does so for a bounded time and is told who holds the GPU, in place of a queue that
grows behind a call that hangs. Locks of several GPUs are taken in the order of their UUIDs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from driver.core.errors import ClaimError
from driver.core.ids import GpuUuid


class GpuLocks:
    """`patience`: seconds for all locks of one call; the kubelet gives up after 45."""

    def __init__(self, *, patience: float = 30.0) -> None:
        self._patience = patience
        self._guard = threading.Lock()
        self._locks: dict[GpuUuid, threading.Lock] = {}
        self._holders: dict[GpuUuid, str] = {}

    @contextmanager
    def held(self, gpus: Sequence[GpuUuid], *, by: str) -> Iterator[None]:
        """ClaimError names the GPU and the holder where it cannot be had in time."""
        deadline = time.monotonic() + self._patience
        with ExitStack() as stack:
            for gpu in sorted(set(gpus)):
                self._take(gpu, by, deadline)
                stack.callback(self._give, gpu)
            yield

    def _take(self, gpu: GpuUuid, by: str, deadline: float) -> None:
        with self._guard:
            lock = self._locks.setdefault(gpu, threading.Lock())
        if not lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            holder = self._holders.get(gpu, "another call")
            raise ClaimError(
                f"{by}: GPU {gpu} is busy with {holder} for more than {self._patience:.0f} s;"
                " it is tried again"
            )
        self._holders[gpu] = by

    def _give(self, gpu: GpuUuid) -> None:
        del self._holders[gpu]
        self._locks[gpu].release()
