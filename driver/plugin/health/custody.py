"""Holds the evidence of this node: one value, changed under a lock, stored before it is acted on.

Why it exists: sources speak from many threads, and what they say must not be lost by a crash that
follows. Only the plugin that leads takes evidence in; one that stands by reads what is stored, so
that it refuses what is withheld, and reads it again when it comes to lead. So does one that has let
go of the lead: what it would still say is said by its successor, which looks at the same GPUs.

Must not know what is done about a change, or any source.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

from driver.core.errors import StateError
from driver.core.health.acknowledge import check
from driver.core.health.evidence import probe_started, take, unasked
from driver.core.health.gpus import found
from driver.core.health.items import Evidence, Identity, KnownGpu
from driver.core.health.reset_told import check as check_reset
from driver.core.health.signals import Acknowledged, Fault, ResetSeen, Scope, Signal, Source
from driver.core.health.weight import weighs_alike
from driver.core.ids import GpuUuid
from driver.observe.logs import Log

log = Log(__name__)

_SAVE_LAZILY: Final = 5.0
"""Seconds for which what is only shown may be lost."""
_SAVE_AGAIN: Final = 5.0
"""Seconds until evidence that could not be written is tried again."""


class EvidenceStore(Protocol):
    """See `driver.state.evidence.EvidenceFile`."""

    def load(self, *, boot_id: str, now: float) -> Evidence: ...

    def save(self, evidence: Evidence, *, now: float) -> float | None: ...


class FaultMetrics(Protocol):
    def health_fault(self, source: str, count: int = 1) -> None: ...


class Custody:
    """Safe for several threads. `identity`: what is on the node now; `gpus`: which GPUs, as far as
    this process has read them. `silent`: sources that are switched off, of which nothing is
    expected any more. `clock`: the time of day, of which evidence speaks; `uptime`: what pauses are
    measured by, as the time of day may be set.
    """

    def __init__(
        self,
        store: EvidenceStore,
        *,
        boot_id: str,
        identity: Callable[[], Identity],
        gpus: Callable[[], Mapping[GpuUuid, KnownGpu]],
        metrics: FaultMetrics,
        silent: Collection[Source] = (),
        clock: Callable[[], float] = time.time,
        uptime: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._boot_id = boot_id
        self._identity = identity
        self._gpus = gpus
        self._metrics = metrics
        self._silent = silent
        self._clock = clock
        self._uptime = uptime
        self._lock = threading.Lock()
        self._on_change: Callable[[bool], None] = lambda _: None
        self._leading = False
        self._save_at: float | None = None
        self._unsaved = ""
        self._evidence = self._loaded()

    def subscribe(self, on_change: Callable[[bool], None]) -> None:
        """`on_change(weighty)` is called in the thread that brought the change, after it is stored;
        not weighty is what is only shown, and that the same was seen once more.
        """
        self._on_change = on_change

    @property
    def evidence(self) -> Evidence:
        return self._evidence

    @property
    def leading(self) -> bool:
        """Whether what is said is taken in, and stored."""
        return self._leading

    @property
    def unsaved(self) -> str:
        """Why the evidence is not on disk as it is; empty: it is."""
        return self._unsaved

    def lead(self) -> None:
        """From now on we take evidence in. The plugin that led before may have stored more."""
        with self._lock:
            if self._leading:
                return
            self._leading = True
            self._evidence = self._loaded()
        self._on_change(True)
        self.found()

    def follow(self) -> None:
        """From now on another plugin may lead, whatever of ours still runs: it must neither write
        over what that one stores, nor know less.
        """
        with self._lock:
            if self._leading and self._save_at is not None:
                self._save()
            self._leading, self._save_at = False, None

    def refresh(self) -> None:
        """While another plugin leads: what it has stored since."""
        with self._lock:
            if self._leading:
                return
            before, self._evidence = self._evidence, self._loaded()
            same = before.items == self._evidence.items
        if not same:
            self._on_change(True)

    def take(self, *signals: Signal) -> bool:
        """Whether they say anything new. Several at once are stored, and judged, once."""

        def taken(evidence: Evidence) -> Evidence:
            identity = self._identity()
            for signal in signals:
                now = self._clock()
                evidence = take(evidence, signal, boot_id=self._boot_id, now=now, identity=identity)
                if isinstance(signal, Fault):
                    self._metrics.health_fault(signal.source.value, signal.count)
            return evidence

        return self._change(taken)

    def found(self) -> None:
        """The GPUs were read, and are not as they were."""
        self._change(lambda evidence: found(evidence, self._gpus()))

    def acknowledge(self, wanted: Acknowledged) -> None:
        """NotAcknowledged says why not, and what to do instead."""
        check(self._evidence, wanted, self._identity())
        self.take(wanted)

    def reset_told(self, *told: ResetSeen) -> None:
        """NotReset says why not, and what to do instead."""
        check_reset(self._evidence, told, self._identity())
        self.take(*told)

    def probe_started(self, scope: Scope) -> None:
        with self._lock:
            # Not stored, and nothing follows from it but when the next one is due.
            self._evidence = probe_started(self._evidence, scope, self._clock())

    def due(self) -> float | None:
        """When `keep` should be called, by `uptime`; None: all is stored."""
        return self._save_at

    def keep(self) -> None:
        """Store what was put off, if it is time by now, or could not be stored."""
        with self._lock:
            if self._save_at is not None:
                self._save()

    def _change(self, made: Callable[[Evidence], Evidence]) -> bool:
        with self._lock:
            if not self._leading:
                return False
            before, after = self._evidence, made(self._evidence)
            if after is before:
                return False
            self._evidence = after
            weighty = not weighs_alike(before, after)
            if weighty:
                self._save()
            elif self._save_at is None:
                self._save_at = self._uptime() + _SAVE_LAZILY
        self._on_change(weighty)
        return True

    def _loaded(self) -> Evidence:
        now = self._clock()
        return unasked(self._store.load(boot_id=self._boot_id, now=now), self._silent)

    def _save(self) -> None:
        """A disk that is full must not keep a sick GPU on offer: what is not stored counts too."""
        now, uptime = self._clock(), self._uptime()
        try:
            due = self._store.save(self._evidence, now=now)
            self._save_at = None if due is None else uptime + due - now
        except StateError as error:
            self._save_at = uptime + _SAVE_AGAIN
            if str(error) != self._unsaved:
                log.error("evidence is not stored; a restart would forget it", reason=str(error))
            self._unsaved = str(error)
        else:
            self._unsaved = ""
