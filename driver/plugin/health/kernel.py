"""Weighs what the kernel's log and NVML's events tell, and asks again what the GPU itself wants.

Why it exists: the driver renews its recovery action a moment after an error, so the first answer
may be too mild. The catalogue counts at once; for some seconds the action is read again, and what
it says then may take the fault's weight away or add to it.

Must not know readers; nor evidence, which it only feeds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, Protocol

from driver.core.health.items import RECOVERY, is_hard
from driver.core.health.kernel.catalogue import Catalogue
from driver.core.health.kernel.log import Event, Forged, KernelLog, NotUnderstood, feed
from driver.core.health.kernel.record import KERNEL, UnreadableRecord, parse_record
from driver.core.health.kernel.verdict import judge
from driver.core.health.kernel.verdict_known import Judgement, Known
from driver.core.health.kernel.verdict_xid import judge_xid
from driver.core.health.kernel.xid import Xid
from driver.core.health.readings.values import NodeReadings
from driver.core.health.signals import STRENGTH, Fault, Need, Overruled, Signal, Source
from driver.core.ids import GpuUuid
from driver.observe.logs import Log
from driver.plugin.health.custody import Custody
from driver.plugin.health.harmless import Harmless, HarmlessSums, HarmlessTexts, harmless
from driver.plugin.health.knowledge import Knowledge
from driver.plugin.health.places import Places
from driver.plugin.health.unsettled import UnsettledSigns
from driver.plugin.supervise import Wakeup
from driver.ports.health import RawRecord, XidSeen

log = Log(__name__)

USER: Final = 1
"""The facility of what programs write into the kernel's log."""


class KernelMetrics(Protocol):
    def kernel_record(self, kind: str, count: int = 1) -> None: ...


class KernelWitness:
    """`run` in a thread of its own; `record`, `xid` and `looked` from those of the sources.

    `look_soon` makes the poll read the GPUs again. `user_records`: also believe what programs
    write, for tests on machines whose kernel log nobody else can write to. `clock`: the time of
    day, of which evidence speaks; `uptime`: what pauses are measured by, as the time of day may be
    set.
    """

    def __init__(
        self,
        custody: Custody,
        places: Places,
        catalogue: Catalogue,
        *,
        look_soon: Callable[[], None],
        metrics: KernelMetrics,
        wakeup: Wakeup,
        user_records: bool = False,
        clock: Callable[[], float] = time.time,
        uptime: Callable[[], float] = time.monotonic,
    ) -> None:
        self._custody = custody
        self._knowledge = Knowledge(places, catalogue, stored=lambda: custody.evidence.gpus)
        self._look_soon = look_soon
        self._metrics = metrics
        self._wakeup = wakeup
        self._facilities = frozenset({KERNEL, USER} if user_records else {KERNEL})
        self._clock = clock
        self._uptime = uptime
        self._state = KernelLog()
        self._unsettled = UnsettledSigns()
        self._texts = HarmlessTexts()
        self._sums = HarmlessSums()

    def record(self, raw: RawRecord) -> bool:
        """Whether it says something about a device. Stored when this returns."""
        known, text = self._known(), _text(raw.data)
        seen = self._texts.get(text, known)
        if seen is not None:
            self._sum_up(seen, raw.at)
            return False
        self._state, events = feed(self._state, parse_record(raw.data), facilities=self._facilities)
        weighs = False
        for event in events:
            said = judge(event, self._known(), at=raw.at)
            if (seen := harmless(said, event)) is not None:
                if len(events) == 1:
                    self._texts.put(text, known, seen)
                self._sum_up(seen, raw.at)
            else:
                self._count(event)
                weighs |= self._tell(said, event, raw.at, Source.KERNEL)
        return weighs

    def xid(self, seen: XidSeen) -> None:
        event = Xid(code=seen.code, gi=seen.gi, ci=seen.ci)
        said = judge_xid(event, self._known(), at=seen.at, source=Source.EVENTS, gpu=seen.gpu)
        self._tell(said, event, seen.at, Source.EVENTS)

    def looked(self, found: NodeReadings) -> None:
        """The poll has read the GPUs: their recovery actions, and the driver's branch."""
        self._knowledge.looked(found, now=self._clock(), uptime=self._uptime())
        self._settle()

    def branch(self) -> int | None:
        """The driver's, as the poll last read it."""
        return self._knowledge.branch

    def run(self, stop: threading.Event) -> None:
        """Asks for looks while a sign waits for one, and passes on what was summed up."""
        while not stop.is_set():
            asks, rest = self._unsettled.ask(self._uptime())
            if asks:
                self._look_soon()
            rests = [each for each in (rest, self._pass_on()) if each is not None]
            self._wakeup.wait(min(rests, default=None))

    def _sum_up(self, seen: Harmless, at: float) -> None:
        """A storm of an application's errors is one signal a second, with its number."""
        first, alone = self._sums.add(seen, at, now=self._uptime())
        if first:
            self._wait_for_advice(seen, at)
        if self._sums.full:
            self._pass_on()
        elif alone:
            self._wakeup.wake()

    def _pass_on(self) -> float | None:
        """What is summed up, if it is complete; else seconds until it is."""
        rest = self._sums.rest(self._uptime())
        if rest is None or rest > 0:
            return rest
        sums = self._sums.take()
        self._metrics.kernel_record("told", sum(each.count for each in sums))
        for each in sums:
            if each.count > 1:
                self._wait_for_advice(each.seen, each.at)
        self._custody.take(*(signal for each in sums for signal in each.signals()))
        return None

    def _wait_for_advice(self, seen: Harmless, at: float) -> None:
        if seen.ask_again is not None:
            self._unsettled_since(seen.event, Need.NOTHING, seen.ask_again, at, Source.KERNEL)

    def _tell(self, said: Judgement, event: Event, at: float, source: Source) -> bool:
        if said.signals:
            self._custody.take(*said.signals)
        if (gpu := said.ask_again) is not None:
            self._unsettled_since(event, _need(said.signals), gpu, at, source)
        return _need(said.signals) is not Need.NOTHING

    def _unsettled_since(
        self, event: Event, need: Need, gpu: GpuUuid, at: float, source: Source
    ) -> None:
        uptime = self._uptime()
        seen = uptime - max(0.0, self._clock() - at)
        if self._unsettled.add(event, need=need, gpu=gpu, source=source, at=seen, now=uptime):
            self._wakeup.wake()

    def _settle(self) -> None:
        """Judge again what was waiting for an action that was read late enough after it."""
        read_at = self._knowledge.read_at
        for each in self._unsettled.settled({gpu: read.uptime for gpu, read in read_at.items()}):
            known = replace(self._known(), settled=True)
            at = read_at[each.gpu].at
            if isinstance(each.event, Xid) and each.event.address is None:
                said = judge_xid(each.event, known, at=at, source=each.source, gpu=each.gpu)
            else:
                said = judge(each.event, known, at=at, source=each.source)
            self._custody.take(*_settled(said.signals, at))

    def _known(self) -> Known:
        return self._knowledge.now(self._state.gpus)

    def _count(self, event: Event) -> None:
        match event:
            case Forged():
                self._metrics.kernel_record("forged")
                log.warning("kernel log: a forged line is not believed", text=event.text)
            case UnreadableRecord():
                self._metrics.kernel_record("unreadable")
            case NotUnderstood():
                self._metrics.kernel_record("not-understood")
                log.warning("kernel log: a line of the driver is not understood", text=event.text)
            case _:
                self._metrics.kernel_record("told")


def _text(data: bytes) -> bytes:
    """A record without its number and time: priority and text."""
    head, _, text = data.partition(b";")
    return head.partition(b",")[0] + b";" + text


def _settled(signals: Iterable[Signal], at: float) -> list[Signal]:
    """A fault as it is judged now is no new sign of it; what is milder takes its weight away."""
    found: list[Signal] = []
    for signal in signals:
        if not isinstance(signal, Fault) or signal.name == RECOVERY:
            found.append(signal)
        elif not is_hard(signal.need):
            found.append(
                Overruled(source=signal.source, scope=signal.scope, name=signal.name, at=at)
            )
    return found


def _need(signals: Iterable[Signal]) -> Need:
    """The strongest; what is no fault is news of a device that is told as such."""
    needs = [s.need if isinstance(s, Fault) else Need.PROBE for s in signals]
    return max(needs, key=STRENGTH.__getitem__, default=Need.NOTHING)
