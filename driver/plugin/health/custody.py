"""Holds the evidence of this node: one value, changed under a lock, stored before it is acted on.

Why it exists: sources speak from many threads, and what they say must not be lost by a crash that
follows. Only the plugin that leads takes evidence in; one that stands by reads what is stored, so
that it refuses what is withheld, and reads it again when it comes to lead.

Must not know what is done about a change, or any source.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from typing import Final, Protocol

from driver.core.errors import StateError
from driver.core.health.acknowledge import check
from driver.core.health.evidence import probe_started, take, unasked
from driver.core.health.items import Evidence, Identity
from driver.core.health.reset_told import check as check_reset
from driver.core.health.signals import Acknowledged, ResetSeen, Scope, Signal, Source
from driver.core.health.weight import weighs_alike
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


class Custody:
    """Safe for several threads. `identity`: what is on the node now. `silent`: sources that are
    switched off, of which nothing is expected any more.
    """

    def __init__(
        self,
        store: EvidenceStore,
        *,
        boot_id: str,
        identity: Callable[[], Identity],
        silent: Collection[Source] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._boot_id = boot_id
        self._identity = identity
        self._silent = silent
        self._clock = clock
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
        with self._lock:
            before, identity = self._evidence, self._identity()
            after = before
            for signal in signals:
                now = self._clock()
                after = take(after, signal, boot_id=self._boot_id, now=now, identity=identity)
            if after is before:
                return False
            self._evidence = after
            weighty = not weighs_alike(before, after)
            if weighty:
                self._save()
            elif self._save_at is None:
                self._save_at = self._clock() + _SAVE_LAZILY
        self._on_change(weighty)
        return True

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
        """When `keep` should be called; None: all is stored."""
        return self._save_at

    def keep(self) -> None:
        """Store what was put off, if it is time by now, or could not be stored."""
        with self._lock:
            if self._save_at is not None:
                self._save()

    def _loaded(self) -> Evidence:
        now = self._clock()
        return unasked(self._store.load(boot_id=self._boot_id, now=now), self._silent)

    def _save(self) -> None:
        """A disk that is full must not keep a sick GPU on offer: what is not stored counts too."""
        now = self._clock()
        try:
            self._save_at = self._store.save(self._evidence, now=now)
        except StateError as error:
            self._save_at = now + _SAVE_AGAIN
            if str(error) != self._unsaved:
                log.error("evidence is not stored; a restart would forget it", reason=str(error))
            self._unsaved = str(error)
        else:
            self._unsaved = ""
