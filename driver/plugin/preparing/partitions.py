"""Carries out a claim's hardware steps, and takes them back: the only place that changes a GPU.

The caller holds the locks of the GPUs, and has written down what is about to be made. A step that
fails undoes what went before it in reverse, so that the hardware is as it was and the kubelet may
simply ask again.

Must not know claims' objects, CDI or the API.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Self

from driver.core.errors import (
    ClaimError,
    DriverMismatch,
    DriverNotLoaded,
    GpuLost,
    InstanceLeft,
    InUse,
    NotFound,
    NvmlError,
)
from driver.core.ids import DeviceName, GpuUuid
from driver.core.ledger import Entry, Made, Slot
from driver.core.prepare import FindPartition, MakePartition, OpenPartition, Step, SwitchMode
from driver.core.snapshot import InstanceFacts
from driver.observe.logs import Log
from driver.plugin.preparing.deadline import NEVER, Deadline
from driver.ports.nvml import MigLibrary

log = Log(__name__)

_IN_USE_SECONDS = 10.0
_IN_USE_PAUSE = 0.25


class Unfinished(ClaimError):
    """Something of the claim is still on a GPU: what was written down must stay, or nobody would
    know whose it is.
    """


class Partitions:
    """`wait(seconds)`: sleeps unless the process ends, which it says, as `Event.wait`. `deadline`:
    nothing is waited for after it.
    """

    def __init__(
        self,
        library: MigLibrary,
        *,
        wait: Callable[[float], object],
        clock: Callable[[], float] = time.monotonic,
        deadline: Deadline = NEVER,
    ) -> None:
        self._library = library
        self._wait = wait
        self._clock = clock
        self._deadline = deadline

    def within(self, deadline: Deadline) -> Self:
        """The same, for one call."""
        return type(self)(self._library, wait=self._wait, clock=self._clock, deadline=deadline)

    def instances(self, gpu: GpuUuid) -> tuple[InstanceFacts, ...]:
        """What is on the hardware now, whoever made it."""
        return self._library.instances(gpu)

    def gone(self, entry: Entry) -> tuple[DeviceName, ...]:
        """Partitions of a complete claim that are not on the hardware any more, as they were made:
        a reset by others, or an administrator's hand, takes them without asking. Of a GPU that is
        lost nobody can tell: its claim keeps what it was given.
        """
        return tuple(
            h.device
            for h in entry.holdings
            if h.slot is not None and h.slot.made is not None and not self._is_there(h.gpu, h.slot)
        )

    def left(self, entry: Entry) -> frozenset[DeviceName]:
        """The devices of a claim that was complete, but for partitions that are gone."""
        had = {h.device for h in entry.holdings if h.slot is None or h.slot.made is not None}
        return frozenset(had.difference(self.gone(entry)))

    def _is_there(self, gpu: GpuUuid, slot: Slot) -> bool:
        try:
            return any(_is(instance, slot) for instance in self._library.instances(gpu))
        except GpuLost:
            return True

    def check(
        self,
        steps: tuple[Step, ...],
        *,
        known: Entry | None = None,
        lost: Callable[[MakePartition, InstanceFacts], None] = lambda *_: None,
    ) -> None:
        """ClaimError where somebody else's instance is in the way. To be asked before anything is
        written down: from then on, what is at the place passes for ours. `known`: the complete
        entry of the claim, some partitions of which are gone. `lost` raises where an instance is
        that of a claim without an entry; a pod may use it.
        """
        for step in steps:
            if not isinstance(step, MakePartition):
                continue
            held = known.holdings if known else ()
            slots = [h.slot for h in held if h.slot is not None and h.gpu == step.gpu]
            for instance in self._library.instances(step.gpu):
                ours = any(_is(instance, s) or _is_bare(instance, s) for s in slots)
                if not instance.placement.mask & step.placement.mask or ours:
                    continue
                lost(step, instance)
                raise ClaimError(
                    f"device {step.device}: GPU instance {instance.id} that Tessera did not"
                    f" make is at its place on GPU {step.gpu}; destroy it"
                    f" (nvidia-smi mig -dgi -gi {instance.id}) to free it"
                )

    def realise(self, steps: tuple[Step, ...], *, adopt: bool) -> dict[DeviceName, Made]:
        """What was made, by device. `adopt`: an instance at the wanted place is a rest of an
        earlier attempt for the same claim. NvmlError or ClaimError: nothing is left, unless it is
        Unfinished.
        """
        made: dict[DeviceName, Made] = {}
        done: list[MakePartition] = []
        rests = {s for s in steps if isinstance(s, MakePartition)} if adopt else set()
        try:
            for step in steps:
                match step:
                    case SwitchMode(gpu=gpu, on=on):
                        self._switch(gpu, on=on)
                    case FindPartition():
                        self._find(step)
                        made[step.device] = step.expected
                    case OpenPartition():
                        made[step.device] = self._open(step)
                    case MakePartition():
                        if step in rests:
                            self._clear(step)
                            rests.remove(step)
                        made[step.device] = self._make(step, rests)
                        done.append(step)
        except (NvmlError, ClaimError) as error:
            for step in reversed(done):
                if not self._take_back(step, made[step.device]):
                    rests.add(step)
            for gpu in {s.gpu for s in steps if isinstance(s, SwitchMode) and s.on}:
                self.switch_off_if_empty(gpu)
            if rests:
                left = ", ".join(sorted(step.device for step in rests))
                raise Unfinished(
                    f"{error}; the next attempt clears what is left of {left}"
                ) from error
            raise
        return made

    def release(self, entry: Entry, *, switchable: Callable[[GpuUuid], bool]) -> None:
        """Take apart what was made for `entry`; what is gone, or not ours any more, is left alone.

        A GPU that is lost or gone, or a driver that is not loaded, has no partitions left to
        destroy. A driver that is only out of step with its library has.
        """
        touched: set[GpuUuid] = set()
        for holding in reversed(entry.holdings):
            if holding.slot is None or not holding.slot.ours:
                continue
            touched.add(holding.gpu)
            try:
                self._destroy(holding.gpu, holding.slot)
            except DriverMismatch:
                raise
            except (GpuLost, DriverNotLoaded, NotFound) as error:
                log.warning("partition went with its GPU", device=holding.device, reason=str(error))
        for gpu in touched:
            if switchable(gpu):
                self.switch_off_if_empty(gpu)

    def switch_off_if_empty(self, gpu: GpuUuid) -> None:
        """MIG mode off after the last partition. A GPU that somebody holds keeps its mode."""
        try:
            if self._library.mode(gpu).enabled and not self._library.instances(gpu):
                self._library.set_mode(gpu, on=False)
        except NvmlError as error:
            log.info("MIG mode stays on", gpu=gpu, reason=str(error))

    def _switch(self, gpu: GpuUuid, *, on: bool) -> None:
        mode = self._library.mode(gpu)
        if mode.enabled != mode.pending:
            raise ClaimError(f"GPU {gpu} waits for a reset before its MIG mode changes")
        if mode.enabled == on:
            return
        if not on and (left := self._library.instances(gpu)):
            raise ClaimError(
                f"GPU {gpu} still has {len(left)} partitions; it is whole again when they are gone"
            )
        self._library.set_mode(gpu, on=on)

    def _find(self, step: FindPartition) -> None:
        wanted = step.expected
        for instance in self._library.instances(step.gpu):
            there = (
                instance.id,
                instance.placement,
                wanted.uuid in {c.uuid for c in instance.compute},
            )
            if there == (wanted.instance, step.placement, True):
                return
        raise ClaimError(
            f"device {step.device} ({wanted.uuid}) is not on GPU {step.gpu} any more;"
            " whoever manages its partitions has removed it"
        )

    def _open(self, step: OpenPartition) -> Made:
        there = self._at(step.gpu, step.profile.id, step.placement.start)
        if there is None or not there.compute:
            raise ClaimError(
                f"device {step.device} is not there now: admin access opens a partition that"
                " another claim uses, and makes none"
            )
        compute = there.compute[0]
        return Made(instance=there.id, compute=compute.id, uuid=compute.uuid)

    def _clear(self, step: MakePartition) -> None:
        there = self._at(step.gpu, step.profile.id, step.placement.start)
        if there is not None:
            self._remove(step.gpu, there)

    def _make(self, step: MakePartition, rests: set[MakePartition]) -> Made:
        try:
            instance = self._library.create(step.gpu, step.profile, step.placement)
        except InstanceLeft:
            rests.add(step)
            raise
        try:
            compute = self._library.create_compute(step.gpu, instance)
        except NvmlError:
            if not self._quietly(lambda: self._library.destroy(step.gpu, instance)):
                rests.add(step)
            raise
        return Made(instance=instance, compute=compute.id, uuid=compute.uuid)

    def _take_back(self, step: MakePartition, made: Made) -> bool:
        self._quietly(lambda: self._library.destroy_compute(step.gpu, made.instance, made.compute))
        return self._quietly(lambda: self._library.destroy(step.gpu, made.instance))

    def _quietly(self, undo: Callable[[], None]) -> bool:
        """Part of undoing: what fails is told, and the first error is the one that counts."""
        try:
            self._gone(undo)
        except NvmlError as error:
            log.error("a step could not be taken back", reason=str(error))
            return False
        return True

    def _destroy(self, gpu: GpuUuid, slot: Slot) -> None:
        for instance in self._library.instances(gpu):
            if instance.placement.start == slot.start and instance.placement.size == slot.size:
                if slot.made and instance.compute and not _is(instance, slot):
                    log.warning("another instance is at the place", gpu=gpu, instance=instance.id)
                    return
                self._remove(gpu, instance)
                return

    def _remove(self, gpu: GpuUuid, instance: InstanceFacts) -> None:
        """Compute instances, then the GPU instance; what is gone meanwhile is gone."""
        for compute in instance.compute:
            self._gone(lambda c=compute.id: self._library.destroy_compute(gpu, instance.id, c))  # type: ignore[misc]
        self._gone(lambda: self._library.destroy(gpu, instance.id))

    def _gone(self, destroy: Callable[[], None]) -> None:
        try:
            self._patiently(destroy)
        except NotFound:
            return

    def _patiently(self, destroy: Callable[[], None]) -> None:
        """A process that is just ending holds its partition for a moment."""
        deadline = self._clock() + _IN_USE_SECONDS
        while True:
            try:
                destroy()
            except InUse:
                over = self._clock() >= deadline or not self._deadline.left()
                if over or self._wait(_IN_USE_PAUSE):
                    raise
            else:
                return

    def _at(self, gpu: GpuUuid, profile_id: int, start: int) -> InstanceFacts | None:
        for instance in self._library.instances(gpu):
            if instance.profile_id == profile_id and instance.placement.start == start:
                return instance
        return None


def _is_bare(instance: InstanceFacts, slot: Slot) -> bool:
    """It lost its compute instance."""
    made = slot.made
    return made is not None and instance.id == made.instance and not instance.compute


def _is(instance: InstanceFacts, slot: Slot) -> bool:
    """By place and UUID: a UUID is a function of ids, which another partition may get later."""
    place = instance.placement
    return (
        (place.start, place.size) == (slot.start, slot.size)
        and slot.made is not None
        and slot.made.uuid in {c.uuid for c in instance.compute}
    )
