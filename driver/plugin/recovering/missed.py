"""Where whoever misses an entry of the ledger says so, also before there is a recovery to hear it.

Why it exists: the ledger and the kubelet's calls are there first. What is missed before recovery
listens is found by its first look. Must not know what is done about it.
"""

from __future__ import annotations

from collections.abc import Callable


class Missed:
    def __init__(self) -> None:
        self._listener: Callable[[], None] = lambda: None

    def heard_by(self, listener: Callable[[], None]) -> None:
        self._listener = listener

    def tell(self) -> None:
        self._listener()
