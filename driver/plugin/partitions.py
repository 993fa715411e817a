"""Carries out a claim's hardware steps, and takes them back: the only place that changes a GPU.

The caller holds the locks of the GPUs, and has written down what is about to be made. A step that
fails undoes what went before it in reverse, so that the hardware is as it was and the kubelet may
simply ask again.

Must not know claims' objects, CDI or the API.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from driver.core.errors import (
    ClaimError,
    DriverNotLoaded,
    GpuLost,
    InUse,
    NotFound,
    NvmlError,
)
from driver.core.ids import DeviceName, GpuUuid
from driver.core.ledger import Entry, Made, Slot
from driver.core.prepare import FindPartition, MakePartition, Step, SwitchMode
from driver.core.snapshot import InstanceFacts
from driver.observe.logs import Log
from driver.ports.nvml import MigLibrary

log = Log(__name__)

_IN_USE_SECONDS = 10.0
_IN_USE_PAUSE = 0.25


class Partitions:
    """`wait(seconds)`: sleeps unless the process ends, as `Event.wait` of the stop event."""

    def __init__(
        self,
        library: MigLibrary,
        *,
        wait: Callable[[float], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._library = library
        self._wait = wait
        self._clock = clock

    def realise(self, steps: tuple[Step, ...], *, adopt: bool) -> dict[DeviceName, Made]:
        """What was made, by device. `adopt`: an instance at the wanted place may be a rest of an
        earlier attempt for the same claim. NvmlError or ClaimError: nothing is left.
        """
        made: dict[DeviceName, Made] = {}
        done: list[MakePartition] = []
        try:
            for step in steps:
                match step:
                    case SwitchMode(gpu=gpu, on=on):
                        self._switch(gpu, on=on)
                    case FindPartition():
                        self._find(step)
                        made[step.device] = step.expected
                    case MakePartition():
                        made[step.device] = self._make(step, adopt=adopt)
                        done.append(step)
        except (NvmlError, ClaimError):
            for step in reversed(done):
                self._take_back(step, made[step.device])
            for gpu in {s.gpu for s in steps if isinstance(s, SwitchMode) and s.on}:
                self.switch_off_if_empty(gpu)
            raise
        return made

    def release(self, entry: Entry, *, switchable: Callable[[GpuUuid], bool]) -> None:
        """Take apart what was made for `entry`; what is gone, or not ours any more, is left alone.

        A GPU that is lost, or a driver that is not loaded, has no partitions left to destroy.
        """
        touched: set[GpuUuid] = set()
        for holding in reversed(entry.holdings):
            if holding.slot is None or not holding.slot.ours:
                continue
            touched.add(holding.gpu)
            try:
                self._destroy(holding.gpu, holding.slot)
            except (GpuLost, DriverNotLoaded) as error:
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
            if instance.id == wanted.instance and wanted.uuid in {c.uuid for c in instance.compute}:
                return
        raise ClaimError(
            f"device {step.device} ({wanted.uuid}) is not on GPU {step.gpu} any more;"
            " whoever manages its partitions has removed it"
        )

    def _make(self, step: MakePartition, *, adopt: bool) -> Made:
        there = self._at(step.gpu, step.profile.id, step.placement.start)
        if there is not None:
            if not adopt:
                raise ClaimError(
                    f"device {step.device}: GPU instance {there.id} that Tessera did not make is at"
                    f" its place on GPU {step.gpu}; destroy it (nvidia-smi mig -dgi) to free it"
                )
            self._remove(step.gpu, there)
        instance = self._library.create(step.gpu, step.profile, step.placement)
        try:
            compute = self._library.create_compute(step.gpu, instance)
        except NvmlError:
            self._quietly(lambda: self._library.destroy(step.gpu, instance))
            raise
        return Made(instance=instance, compute=compute.id, uuid=compute.uuid)

    def _take_back(self, step: MakePartition, made: Made) -> None:
        self._quietly(lambda: self._library.destroy_compute(step.gpu, made.instance, made.compute))
        self._quietly(lambda: self._library.destroy(step.gpu, made.instance))

    def _quietly(self, undo: Callable[[], None]) -> None:
        """Part of undoing: what fails is told, and the first error is the one that counts."""
        try:
            self._patiently(undo)
        except NvmlError as error:
            log.error("a step could not be taken back", reason=str(error))

    def _destroy(self, gpu: GpuUuid, slot: Slot) -> None:
        for instance in self._library.instances(gpu):
            if instance.placement.start == slot.start and instance.placement.size == slot.size:
                if slot.made and instance.compute and not _is(instance, slot.made):
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
                if self._clock() >= deadline:
                    raise
                self._wait(_IN_USE_PAUSE)
            else:
                return

    def _at(self, gpu: GpuUuid, profile_id: int, start: int) -> InstanceFacts | None:
        for instance in self._library.instances(gpu):
            if instance.profile_id == profile_id and instance.placement.start == start:
                return instance
        return None


def _is(instance: InstanceFacts, made: Made) -> bool:
    return made.uuid in {c.uuid for c in instance.compute}
