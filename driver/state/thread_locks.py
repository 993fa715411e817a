"""Locks named by strings between the threads of one process, with the holder's name.

Why not a `threading.Lock` for each name: names come and go with claims, and whoever waits in vain
should learn for whom. Here a name costs nothing while nobody holds it.

Must not know other processes; `named_locks.py` adds them.
"""

from __future__ import annotations

import threading


class ThreadLocks:
    """Implements `driver.ports.state.Locks`. Nobody may take a name twice before giving it back."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holders: dict[str, str] = {}

    def take(self, name: str, *, by: str, patience: float) -> str:
        with self._changed:
            if not self._changed.wait_for(lambda: name not in self._holders, patience):
                return self._holders[name]
            self._holders[name] = by
            return ""

    def give(self, name: str) -> None:
        with self._changed:
            del self._holders[name]
            self._changed.notify_all()
