"""Runs the probes that the evidence asks for, on devices that nobody holds.

Why it exists: a device comes back only after a program has computed on it. A probe holds the GPU's
lock, so that no claim is prepared on it meanwhile; a claim that comes ends the probe, because a pod
that waits is worth more than a proof that can be had later.

Must not know CUDA, or what an outcome means.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

from driver.core.errors import ClaimError, StateError
from driver.core.health.probe import Interrupted, Outcome, ProbeTarget, signals, silent_runs
from driver.core.health.probing import (
    NO_INSTANCE,
    NotNow,
    Policy,
    Round,
    choose,
    next_due,
    proof,
    routine,
)
from driver.core.health.wishes import wanted_probes
from driver.core.ids import GpuUuid
from driver.observe.logs import Log
from driver.plugin.health.custody import Custody
from driver.plugin.health.places import Places
from driver.plugin.node import Hardware
from driver.plugin.preparing.gpu_locks import GpuLocks
from driver.plugin.supervise import Wakeup

log = Log(__name__)


_MAKES_WAY: Final = 15.0
"""Seconds for which no probe is started where a claim is about to be prepared."""


class DeviceProber(Protocol):
    """See `driver.cuda.prober.Prober`."""

    def probe(self, target: ProbeTarget) -> Outcome: ...

    def interrupt(self, gpu: GpuUuid | None = None) -> None: ...


class ProbeMetrics(Protocol):
    def probed(self, outcome: str) -> None: ...


class Probes:
    """`run` in a thread of its own; `look`, `make_way` from any. `unused` is called for a GPU that
    stays in MIG mode without an instance: nothing can be probed on it. `closed`: whether the GPUs
    are let go of, so that others can reset them. `clock`: the time of day, of which evidence
    speaks; `uptime`: what pauses are measured by, as the time of day may be set.
    """

    def __init__(
        self,
        custody: Custody,
        places: Places,
        hardware: Hardware,
        prober: DeviceProber,
        *,
        locks: GpuLocks,
        policy: Policy,
        metrics: ProbeMetrics,
        unused: Callable[[GpuUuid], None],
        wakeup: Wakeup,
        closed: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.time,
        uptime: Callable[[], float] = time.monotonic,
    ) -> None:
        self._custody = custody
        self._places = places
        self._hardware = hardware
        self._prober = prober
        self._locks = locks
        self._policy = policy
        self._metrics = metrics
        self._unused = unused
        self._wakeup = wakeup
        self._closed = closed
        self._clock = clock
        self._uptime = uptime
        self._lock = threading.Lock()
        self._running: set[GpuUuid] = set()
        self._last: dict[GpuUuid, float] = {}
        self._wanted: dict[GpuUuid, float] = {}
        self._silent: dict[str, int] = {}
        self._began = uptime()
        self._over = False

    def look(self) -> None:
        """Evidence, hardware or claims are not as they were."""
        self._wakeup.wake()

    def make_way(self, gpus: Collection[GpuUuid]) -> None:
        """A claim is about to be prepared on these GPUs."""
        until = self._uptime() + _MAKES_WAY
        with self._lock:
            self._wanted.update(dict.fromkeys(gpus, until))
            running = self._running & set(gpus)
        for gpu in running:
            self._prober.interrupt(gpu)

    def let_go(self) -> None:
        """End all that run: a program that computes has the GPU open."""
        self._prober.interrupt()

    def run(self, stop: threading.Event) -> None:
        workers = ThreadPoolExecutor(self._policy.parallel, thread_name_prefix="probe")
        try:
            while not stop.is_set():
                pause = self._start(workers)
                self._wakeup.wait(pause)
        finally:
            self._over = True
            self._prober.interrupt()
            workers.shutdown(wait=True, cancel_futures=True)

    def _start(self, workers: ThreadPoolExecutor) -> float | None:
        """Start what is due; seconds until the next is, None: when something happens."""
        now, uptime = self._clock(), self._uptime()
        inventory = self._hardware.inventory
        if inventory is None or self._closed():
            return None
        wishes = wanted_probes(self._custody.evidence, now, self._places.identity())
        ahead = now - uptime
        last = {gpu: at + ahead for gpu, at in self._last.items()}
        since = self._began + ahead
        due = routine(inventory.gpus, last=last, policy=self._policy, since=since)
        due |= {wish.scope: wish.due for wish in wishes}
        with self._lock:
            self._wanted = {gpu: until for gpu, until in self._wanted.items() if until > uptime}
            for scope in due:
                if scope.gpu in self._wanted:
                    due[scope] = max(due[scope], self._wanted[scope.gpu] + ahead)
            rounds, waiting = choose(
                due,
                inventory.gpus,
                held=self._places.held(),
                running=self._running,
                policy=self._policy,
                now=now,
            )
            for each in rounds:
                if each.scope.gpu is not None:
                    self._running.add(each.scope.gpu)
                    self._last[each.scope.gpu] = uptime
        for each in rounds:
            self._custody.probe_started(each.scope)
            workers.submit(self._round, each)
        for not_now in waiting:
            self._see_to(not_now, workers)
        at = next_due(due, now=now)
        return None if at is None else at - now

    def _round(self, each: Round) -> None:
        gpu = each.scope.gpu
        assert gpu is not None  # noqa: S101 - `choose` gives no round without one
        try:
            with self._locks.held((gpu,), by="a health probe"):
                outcomes = self._outcomes(gpu, each)
        except (ClaimError, StateError) as error:
            log.info("probe put off", gpu=gpu, reason=str(error))
            return
        except Exception:
            log.exception("probe failed", gpu=gpu)
            return
        finally:
            with self._lock:
                self._running.discard(gpu)
            self._wakeup.wake()
        if (passed := proof(each, outcomes)) is not None:
            self._custody.take(passed)

    def _outcomes(self, gpu: GpuUuid, each: Round) -> list[Outcome]:
        """As far as nobody else wants the GPU. Under its lock."""
        outcomes: list[Outcome] = []
        # Between the choice and the lock a claim may have got it, or a part of what was whole.
        uuids = {target.uuid for target in each.targets}
        if self._places.held() & {gpu, *uuids} or (gpu in uuids and self._places.holds(gpu)):
            return outcomes
        for target in each.targets:
            if self._over or self._closed() or gpu in self._wanted:
                break
            outcomes.append(self._probe(target))
            if isinstance(outcomes[-1], Interrupted):
                break
        return outcomes

    def _probe(self, target: ProbeTarget) -> Outcome:
        started = self._clock()
        outcome = self._prober.probe(target)
        silent = silent_runs(self._silent.get(target.uuid, 0), outcome)
        self._silent[target.uuid] = silent
        self._metrics.probed(type(outcome).__name__)
        log.info("device probed", device=target.uuid, outcome=str(outcome))
        said = signals(target, outcome, started=started, at=self._clock(), silent=silent)
        self._custody.take(*said)
        return outcome

    def _see_to(self, not_now: NotNow, workers: ThreadPoolExecutor) -> None:
        log.debug("probe has to wait", scope=str(not_now.scope), reason=not_now.detail)
        gpu = not_now.scope.gpu
        if not_now.name == NO_INSTANCE and gpu is not None:
            workers.submit(self._leave_mig, gpu)

    def _leave_mig(self, gpu: GpuUuid) -> None:
        """Under the GPU's lock: a claim may be about to cut it."""
        try:
            with self._locks.held((gpu,), by="a health probe"):
                if not self._closed() and not self._places.holds(gpu):
                    self._unused(gpu)
        except (ClaimError, StateError) as error:
            log.info("MIG mode stays as it is", gpu=gpu, reason=str(error))
        except Exception:
            log.exception("MIG mode stays as it is", gpu=gpu)
