"""Signs that wait until the GPU's own advice was read late enough after them.

Why it exists: the driver renews its recovery action a moment after an error. Each sign is judged
once more when the action was read after that, and until then the action is asked for at growing
pauses. A storm of equal signs asks no more often than one, and a GPU that does not answer is not
asked for ever.

Must not know what a sign means.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from driver.core.health.kernel.log import Event
from driver.core.health.kernel.verdict_known import REASK_SECONDS
from driver.core.health.kernel.xid import Xid
from driver.core.health.signals import Need, Source, stronger
from driver.core.ids import GpuUuid

ASKS: Final = (0.3, 1.0, 2.5, REASK_SECONDS)
"""Seconds after a sign at which the recovery action is read again; then every `REASK_SECONDS`."""
GIVES_UP: Final = 60.0
"""Seconds after which a GPU that does not answer is not asked for this sign any more."""
_MOST: Final = 256


class _Key(NamedTuple):
    gpu: GpuUuid
    source: Source
    kind: str


@dataclass(slots=True, kw_only=True)
class Unsettled:
    """`event`: of those alike the one that asks for most. `at`: when the newest was seen; it may
    have been read later.
    """

    event: Event
    need: Need
    gpu: GpuUuid
    source: Source
    at: float
    since: float
    asked: int = 0

    @property
    def due(self) -> float:
        """When the action should be asked for next."""
        late = max(0, self.asked - len(ASKS) + 1)
        return self.since + ASKS[min(self.asked, len(ASKS) - 1)] + late * REASK_SECONDS


class UnsettledSigns:
    """Safe for several threads. Times are seconds of one clock, which nobody sets."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._signs: dict[_Key, Unsettled] = {}

    def add(
        self, event: Event, *, need: Need, gpu: GpuUuid, source: Source, at: float, now: float
    ) -> bool:
        """Whether it is the first of its kind, so that somebody has to ask."""
        key = _Key(gpu, source, _kind(event))
        with self._lock:
            known = self._signs.get(key)
            if known is None:
                if len(self._signs) < _MOST:
                    self._signs[key] = Unsettled(
                        event=event, need=need, gpu=gpu, source=source, at=at, since=now
                    )
                return True
            if stronger(known.need, need) == need:
                known.event, known.need = event, need
            known.at = max(at, known.at)
            return False

    def ask(self, now: float) -> tuple[bool, float | None]:
        """Whether the actions should be read now; seconds until the next time, None: never."""
        with self._lock:
            self._signs = {k: s for k, s in self._signs.items() if now - s.since < GIVES_UP}
            due = [each for each in self._signs.values() if each.due <= now]
            for each in due:
                while each.due <= now:
                    each.asked += 1
            rest = min((each.due - now for each in self._signs.values()), default=None)
        return bool(due), rest

    def settled(self, read_at: Mapping[GpuUuid, float]) -> list[Unsettled]:
        """Those whose GPU's action was read late enough; they wait no more."""
        with self._lock:
            ready = {
                key: each
                for key, each in self._signs.items()
                if read_at.get(each.gpu, float("-inf")) >= each.at + REASK_SECONDS
            }
            for key in ready:
                del self._signs[key]
        return [*ready.values()]


def _kind(event: Event) -> str:
    """Signs of two partitions are two signs: each has its own fault."""
    if isinstance(event, Xid):
        return f"xid {event.code} {event.gi} {event.ci}"
    return f"{type(event).__name__} {getattr(event, 'trouble', '')}"
