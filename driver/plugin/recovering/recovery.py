"""Mends what crashes, damaged files and missed calls left behind: at the start, and now and then.

The core plans; each repair is decided again when it is that claim's turn, under the locks of its
GPUs, and concerns that claim alone: what fails is told and tried again at the next look.

`begin` needs no API, and comes before the kubelet's sockets: running pods find their CDI files, and
what the ledger lost is held again. `run` asks the API too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Final, Protocol, assert_never

from driver.core.errors import (
    ClaimError,
    InUse,
    NotFound,
    NotSupported,
    NvmlError,
    StateError,
)
from driver.core.ids import ClaimUID, GpuUuid
from driver.core.ledger import Entry, alone
from driver.core.recovery import (
    Facts,
    Forget,
    Rebuild,
    RemoveCdi,
    Repair,
    RestoreCdi,
    TakeBack,
    devices_of,
    is_released,
    plan_repairs,
    repair_of,
)
from driver.observe.logs import Log
from driver.plugin.node import Hardware
from driver.plugin.preparing.gpu_locks import GpuLocks
from driver.plugin.preparing.partitions import Partitions
from driver.plugin.recovering.ends import HeardEnds
from driver.plugin.recovering.facts import FactFinder
from driver.plugin.recovering.lookup import Answers, ClaimLookup
from driver.plugin.supervise import Wakeup
from driver.ports.events import Reason
from driver.ports.nvml import MigLibrary
from driver.ports.state import CdiStore, Ledger

log = Log(__name__)

_FIRST_READING: Final = 10.0
"""Seconds that the start waits for the hardware; a driver that comes later is met by `run`."""
_AFTER_CHANGE: Final = 60.0
_AFTER_FAILURE: Final = 60.0
_AFTER_LOSS: Final = 1.0
"""Many may miss an entry at once."""
_BY: Final = "recovery"

DONE, BUSY, IN_USE, FAILED = "done", "busy", "in_use", "failed"
_NOT_NEEDED: Final = ""
_NAMES: Final[Mapping[type[Repair], str]] = {
    RestoreCdi: "restore_cdi",
    RemoveCdi: "remove_cdi",
    Rebuild: "rebuild",
    TakeBack: "take_back",
    Forget: "forget",
}


class ClaimTurns(Protocol):
    def try_held(self, uid: ClaimUID) -> AbstractContextManager[bool]: ...


class RepairMetrics(Protocol):
    def repaired(self, repair: str, outcome: str) -> None: ...

    def set_orphaned_claims(self, count: int) -> None: ...


Tell = Callable[[Reason, str], None]


class Recovery:
    """`partitions` must not wait for what is in use: there is a next look. `pause`: seconds between
    looks; `grace`: see `Facts`. `tell`: an event. `on_change` is called when the ledger is another.
    """

    def __init__(
        self,
        *,
        facts: FactFinder,
        lookup: ClaimLookup,
        hardware: Hardware,
        ledger: Ledger,
        cdi: CdiStore,
        library: MigLibrary,
        partitions: Partitions,
        locks: GpuLocks,
        turns: ClaimTurns,
        metrics: RepairMetrics,
        tell: Tell,
        pause: float,
        grace: float,
        wakeup: Wakeup,
        on_change: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._facts = facts
        self._lookup = lookup
        self._hardware = hardware
        self._ledger = ledger
        self._cdi = cdi
        self._library = library
        self._partitions = partitions
        self._locks = locks
        self._turns = turns
        self._metrics = metrics
        self._tell = tell
        self._pause = pause
        self._grace = grace
        self._wakeup = wakeup
        self._on_change = on_change
        self._clock = clock
        self._since: dict[ClaimUID, float] = {}
        self._changed = threading.Event()
        self._lost = threading.Event()
        self._failed = False
        self._ends = HeardEnds(grace)

    def changed(self) -> None:
        """The hardware is another one: look soon."""
        self._changed.set()
        self._wakeup.wake()

    def lost(self) -> None:
        """Something of the ledger is lost: look at once."""
        self._lost.set()
        self._wakeup.wake()

    def ended(self, uid: ClaimUID) -> None:
        """A claim is gone from the API, or without its devices, as a watch tells: its grace begins.
        Nothing is asked before it is over; the kubelet takes back nearly all of them in time.
        """
        self._ends.heard(uid, self._clock())
        self._wakeup.wake()

    def begin(self) -> None:
        """Without the API, and in bounded time."""
        try:
            if not self._facts.entries() and not self._cdi.claims():
                return
            self._hardware.wait_read(_FIRST_READING)
            self._mend(plan_repairs(self._find({})), ask=False)
        except StateError as error:
            log.error("recovery at the start failed, is tried again", reason=str(error))

    def run(self, stop: threading.Event) -> None:
        due = self._clock()
        while not stop.is_set():
            if (rest := min(due, self._ends.due()) - self._clock()) > 0:
                self._wakeup.wait(rest)
                if self._changed.is_set():
                    self._changed.clear()
                    due = min(due, self._clock() + _AFTER_CHANGE)
                if self._lost.is_set():
                    self._lost.clear()
                    due = min(due, self._clock() + _AFTER_LOSS)
            elif due <= self._clock() or self.is_left():
                due = self._clock() + self.look()

    def is_left(self) -> bool:
        """Whether we still hold something of a claim that ended, by the watch, a grace ago."""
        over = self._ends.over(self._clock())
        try:
            return not over.isdisjoint(self._facts.entries())
        except StateError as error:
            log.error("ended claims cannot be looked for", reason=str(error))
            return True

    def look(self) -> float:
        """One comparison and its repairs; seconds until the next one is due."""
        try:
            entries = self._facts.entries()
            claims = self._lookup.ask(
                {uid: entries.get(uid) for uid in entries.keys() | self._facts.files().keys()}
            )
            self._track(entries, claims)
            self._mend(plan_repairs(self._find(claims)), ask=True)
            left = self._since.keys() & self._facts.entries().keys()
        except StateError as error:
            log.error("recovery failed, is tried again", reason=str(error))
            return self._pause
        self._metrics.set_orphaned_claims(len(left))
        ends = [self._since[uid] + self._grace - self._clock() for uid in left]
        again = [_AFTER_FAILURE] if self._failed else []
        return min([self._pause, *again, *(end for end in ends if end > 0)])

    def _find(self, claims: Answers, only: ClaimUID | None = None) -> Facts:
        now = self._clock()
        return self._facts.find(
            claims,
            released_for={uid: now - since for uid, since in self._since.items()},
            grace=self._grace,
            only=only,
        )

    def _track(self, entries: Mapping[ClaimUID, Entry], claims: Answers) -> None:
        """Since when each claim has ended, by all answers since then; the first may be what was
        heard.
        """
        for uid, entry in entries.items():
            if is_released(uid, devices_of(entry), claims):
                self._since.setdefault(uid, self._ends.since(uid, self._clock()))
            elif uid in claims:
                self._since.pop(uid, None)
                self._ends.denied(uid)
        for uid in self._since.keys() - entries.keys():
            del self._since[uid]

    def _mend(self, plan: tuple[Repair, ...], *, ask: bool) -> None:
        self._failed = False
        for planned in plan:
            name = _NAMES[type(planned)]
            try:
                outcome = self._in_turn(planned, ask=ask)
            except InUse as error:
                outcome = self._in_use(planned.uid, str(error))
            except (StateError, ClaimError, NvmlError) as error:
                log.warning("repair failed", repair=name, claim=planned.uid, reason=str(error))
                outcome, self._failed = FAILED, True
            if outcome:
                self._metrics.repaired(name, outcome)

    def _in_turn(self, planned: Repair, *, ask: bool) -> str:
        uid = planned.uid
        with self._turns.try_held(uid) as free:
            if not free:
                return BUSY
            entries = self._facts.entries()
            claims = self._lookup.ask({uid: entries.get(uid)}) if ask else {}
            gpus = self._facts.gpus_of(uid, entries, self._facts.files())
            with self._locks.held(gpus, by=_BY):
                repair = repair_of(uid, self._find(claims, only=uid))
                if type(repair) is not type(planned):
                    return _NOT_NEEDED
                return self._carry_out(repair)

    def _carry_out(self, repair: Repair) -> str:
        match repair:
            case RestoreCdi(entry=entry):
                spec = self._facts.spec(entry)
                if spec is None or not self._cdi.ensure(entry.uid, spec):
                    return _NOT_NEEDED
                self._told(Reason.RECOVERED, entry, "CDI file was missing or altered, restored")
            case RemoveCdi(uid=uid):
                self._cdi.remove(uid)
                log.info("CDI file that nothing uses removed", claim=uid)
            case Rebuild(entry=entry):
                self._ledger.put(entry)
                self._on_change()
                self._told(Reason.LEDGER_REBUILT, entry, "ledger entry was lost, made again")
            case TakeBack(entry=entry, when_idle=when_idle):
                if when_idle and (user := self._user(entry)):
                    return self._in_use(entry.uid, user)
                self._end(entry, self._partitions)
                self._told(Reason.ORPHAN_REMOVED, entry, "claim had ended elsewhere, taken back")
            case Forget(entry=entry):
                self._end(entry, None)
                log.info("entry of an earlier boot removed", claim=entry.uid)
            case _:
                assert_never(repair)
        return DONE

    def _end(self, entry: Entry, partitions: Partitions | None) -> None:
        """In the order of an unpreparation."""
        self._cdi.remove(entry.uid)
        if partitions is not None:
            ours = alone(entry, self._facts.entries().values())
            partitions.release(ours, switchable=self._switchable)
        self._ledger.remove(entry.uid)
        self._since.pop(entry.uid, None)
        self._on_change()

    def _user(self, entry: Entry) -> str:
        """Which device of it is computed on, or may be, as a sentence.

        None seen is no proof (a driver may not show processes of other PID namespaces): a partition
        is safe all the same, since it cannot be destroyed while it is open. A failure to look is
        none either, and a whole GPU has no such guard.
        """
        for holding in entry.holdings:
            if holding.admin_access:
                continue
            made = holding.slot.made if holding.slot else None
            if holding.slot is not None and made is None:
                continue
            try:
                count = self._library.processes(holding.gpu, made)
            except (NotSupported, NotFound) as error:
                log.info("processes cannot be seen", device=holding.device, reason=str(error))
                continue
            except NvmlError as error:
                return f"processes on device {holding.device} cannot be seen now: {error}"
            if count:
                return f"{count} processes compute on device {holding.device}"
        return ""

    def _in_use(self, uid: ClaimUID, why: str) -> str:
        log.warning("an ended claim is still in use, left until the next look", claim=uid, why=why)
        return IN_USE

    def _switchable(self, gpu: GpuUuid) -> bool:
        inventory = self._hardware.inventory
        facts = inventory.gpus.get(gpu) if inventory else None
        return facts is not None and facts.mig.switchable

    def _told(self, reason: Reason, entry: Entry, what: str) -> None:
        devices = ", ".join(sorted(devices_of(entry)))
        name = f"{entry.namespace}/{entry.name} ({entry.uid})" if entry.name else entry.uid
        log.warning(what, claim=name, devices=devices)
        self._tell(reason, f"claim {name}: {what}: {devices}")
