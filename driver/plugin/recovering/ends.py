"""Ends of claims as a watch tells them, and when it is time to see what is left of each.

Why it exists: nearly every claim that ends has been taken back by the kubelet long before its grace
is over, and must cost no request to the API. Must not know what is done about one that has not.
"""

from __future__ import annotations

import threading

from driver.core.ids import ClaimUID


class HeardEnds:
    """`grace`: seconds after which an end is due. Heard on one thread, asked on another."""

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._lock = threading.Lock()
        self._at: dict[ClaimUID, float] = {}
        self._told: dict[ClaimUID, float] = {}

    def heard(self, uid: ClaimUID, now: float) -> None:
        with self._lock:
            self._at[uid] = now

    def denied(self, uid: ClaimUID) -> None:
        """The API has the claim all the same."""
        with self._lock:
            self._at.pop(uid, None)
            self._told.pop(uid, None)

    def due(self) -> float:
        """When the next one is; infinite where there is none."""
        with self._lock:
            return min(self._at.values(), default=float("inf")) + self._grace

    def over(self, now: float) -> frozenset[ClaimUID]:
        """Those that are due, each told once; `since` knows them until the next call."""
        with self._lock:
            self._told = {u: at for u, at in self._at.items() if at + self._grace <= now}
            for uid in self._told:
                del self._at[uid]
            return frozenset(self._told)

    def since(self, uid: ClaimUID, now: float) -> float:
        """When the end of a claim was heard; `now` where it was not."""
        with self._lock:
            return self._at.get(uid, self._told.get(uid, now))
