"""The judgement that is in force, for all who act on it: publisher, kubelet, preparation.

Why it exists: a taint, a stream and a refusal that say different things would be worse than none,
so all are made from one value here. Taints are held back to one change a second on average: a
signal that flaps must not flood the API server. What withholds more does not wait for what was put
right just before it. Taints of new devices do not wait at all, for these must not be published
without. Refusals and the stream are never held back.

Must not know evidence, or how a judgement is made.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TypeVar

from api.resource.types import Taint, TaintEffect
from driver.core.health.explain import explain, summary
from driver.core.health.judge import READY, Judgement, Judgements, State
from driver.core.health.taints import taints
from driver.core.ids import DeviceName, GpuUuid, PoolName
from driver.ports.kubelet import DeviceHealth, DeviceState

Made = TypeVar("Made")
Taints = Mapping[DeviceName, tuple[Taint, ...]]

_SHOWN = {
    State.READY: DeviceState.HEALTHY,
    State.DEGRADED: DeviceState.HEALTHY,
    State.UNKNOWN: DeviceState.UNKNOWN,
    State.RESET: DeviceState.UNHEALTHY,
    State.REBOOT: DeviceState.UNHEALTHY,
    State.OPERATOR: DeviceState.UNHEALTHY,
}


_SAVED = 2.0
"""Changes of taints that may be saved up: one for bad news at any time, one for good."""
_NOTHING = 1e-6


class Judged:
    """Implements `driver.ports.kubelet.HealthFeed`. Safe for several threads.

    `ending`: names of faults that end the pods of a device (NoExecute). `pace`: seconds that a
    change of taints costs; two may be saved up, and good news waits until both are.
    """

    def __init__(
        self,
        *,
        driver: str,
        pool: PoolName,
        ending: Collection[str] = (),
        pace: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._driver = driver
        self._pool = pool
        self._ending = frozenset(ending)
        self._pace = pace
        self._clock = clock
        self._wall = wall
        self._lock = threading.Lock()
        self._judgements = Judgements()
        self._feed: tuple[DeviceHealth, ...] = ()
        self._wanted: Taints = {}
        self._taints: Taints = {}
        self._room, self._counted_at = _SAVED, clock()
        self._told: list[Callable[[], None]] = []
        self._on_taints: Callable[[], None] = lambda: None

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Called when the judgement is another one."""
        self._told.append(on_change)

    def subscribe_taints(self, on_change: Callable[[], None]) -> None:
        self._on_taints = on_change

    @property
    def judgements(self) -> Judgements:
        return self._judgements

    def current(self) -> tuple[DeviceHealth, ...]:
        return self._feed

    def taints(self) -> Taints:
        """As they are to be published now."""
        return self._taints

    def of_device(self, device: DeviceName, gpu: GpuUuid) -> Judgement:
        """A device that is not listed any more is what its GPU is."""
        found = self._judgements
        return found.devices.get(device) or found.gpus.get(gpu, READY)

    def refusal(self, devices: Iterable[tuple[DeviceName, GpuUuid]]) -> str:
        """Why none of them may be prepared; empty where nothing hard is held against them."""
        for device, gpu in devices:
            judgement = self.of_device(device, gpu)
            if judgement.state.hard:
                return f"device {device} is withheld: {summary(judgement)}"
        return ""

    def set(self, judgements: Judgements) -> float | None:
        """Take a judgement in. Seconds until `settle` should be called; None: nothing waits."""
        with self._lock:
            before, self._judgements = self._judgements, judgements
            same = judgements == before
            if judgements.devices.keys() != before.devices.keys():
                self._room = _SAVED
            if not same:
                self._wanted = self._tainted(judgements)
        # The scheduler first: all others only tell of it.
        pause = self.settle()
        if not same:
            with self._lock:
                self._feed = self._told_now(judgements)
            for on_change in self._told:
                on_change()
        return pause

    def settle(self) -> float | None:
        """Let taints that were held back go, if it is time."""
        with self._lock:
            if self._wanted == self._taints:
                return None
            now = self._clock()
            self._room += (now - self._counted_at) / self._pace
            self._room, self._counted_at = min(self._room, _SAVED), now
            needed = 1.0 if _withholds_more(self._wanted, self._taints) else _SAVED
            if (short := needed - self._room) > _NOTHING:
                return short * self._pace
            self._taints, self._room = self._wanted, self._room - 1.0
        self._on_taints()
        return None

    def _tainted(self, judgements: Judgements) -> Taints:
        found = _each(judgements, lambda j: taints(j, self._driver, self._ending))
        return {device: made for device, _, made in found if made}

    def _told_now(self, judgements: Judgements) -> tuple[DeviceHealth, ...]:
        before = {each.device: each for each in self._feed}
        return tuple(
            self._health(device, judgement, message, before.get(device))
            for device, judgement, message in _each(judgements, _message)
        )

    def _health(
        self, device: DeviceName, judgement: Judgement, message: str, before: DeviceHealth | None
    ) -> DeviceHealth:
        state = _SHOWN[judgement.state]
        if before and (before.state, before.message) == (state, message):
            return before
        since = before.since if before and before.state is state else None
        return DeviceHealth(
            pool=self._pool,
            device=device,
            state=state,
            since=since or judgement.since or self._wall(),
            message=message,
        )


def _each(
    judgements: Judgements, make: Callable[[Judgement], Made]
) -> Iterator[tuple[DeviceName, Judgement, Made]]:
    """What is made of each device's judgement; once for all that rest on the same reasons."""
    known: dict[tuple[int, ...], Made] = {}
    for device, judgement in judgements.devices.items():
        reasons = tuple(map(id, judgement.reasons))
        if reasons not in known:
            known[reasons] = make(judgement)
        yield device, judgement, known[reasons]


def _withholds_more(wanted: Taints, published: Taints) -> bool:
    """Whether a device is kept from claims for a reason that it was not kept for before."""
    return any(
        taint.effect is not TaintEffect.NONE and taint not in published.get(device, ())
        for device, found in wanted.items()
        for taint in found
    )


def _message(judgement: Judgement) -> str:
    if not judgement.reasons:
        return ""
    # Of a device that is ready, what is only shown: its first line says nothing of it.
    return explain(judgement)[1] if judgement.state is State.READY else summary(judgement)
