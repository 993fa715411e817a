"""One turn a claim: whoever prepares, takes back or repairs a claim does so alone.

Why it exists: the kubelet's calls for one claim may overlap (it gives up after 45 seconds, we go
on), a second plugin may run, and recovery works beside them. A turn is taken around the whole of a
call, the reading of the claim included: what is decided from what was read still holds when it is
done. So a preparation that comes after the end of a claim reads that the claim is gone.

Turns are taken before the locks of GPUs, never after.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from driver.core.errors import ClaimError
from driver.core.ids import ClaimUID
from driver.ports.state import Locks


class Turns:
    """`patience`: seconds that a call waits at most."""

    def __init__(self, locks: Locks, *, patience: float = 15.0) -> None:
        self._locks = locks
        self._patience = patience

    @contextmanager
    def held(self, uid: ClaimUID, *, by: str, patience: float | None = None) -> Iterator[None]:
        """ClaimError names the holder where it does not end in time. `patience`: where less is
        left of it.
        """
        allowed = self._patience if patience is None else min(patience, self._patience)
        holder = self._locks.take(_name(uid), by=by, patience=allowed)
        if holder:
            raise ClaimError(
                f"{by}: the claim is busy with {holder} for more than {allowed:.0f} s;"
                " it is tried again"
            )
        try:
            yield
        finally:
            self._locks.give(_name(uid))

    @contextmanager
    def try_held(self, uid: ClaimUID, *, by: str = "recovery") -> Iterator[bool]:
        """Whether the claim was free; it is ours then until the end of the block."""
        free = not self._locks.take(_name(uid), by=by, patience=0)
        try:
            yield free
        finally:
            if free:
                self._locks.give(_name(uid))


def _name(uid: ClaimUID) -> str:
    return f"claim {uid}"
