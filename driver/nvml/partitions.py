"""Making and unmaking partitions: one method, one change, nothing half done left behind.

Why it exists: what NVML reports as success is not always one. A change of the MIG mode may be put
off until a reset, and an instance may in principle lie elsewhere than asked; each method returns
only when what was asked for is so, and says where it could not take back what it had made.

Must not know claims, nor what a partition is for.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pynvml

from driver.core.errors import (
    InstanceLeft,
    InUse,
    NoResources,
    NotFound,
    NotSupported,
    NvmlError,
    ResetRequired,
)
from driver.core.geometry import MigProfile, Placement
from driver.core.ids import GpuUuid
from driver.core.ledger import Made
from driver.core.snapshot import ComputeFacts, InstanceFacts
from driver.nvml.calls import activate, call, optional
from driver.nvml.compute import whole_instance
from driver.nvml.instances import compute_facts, read_instances
from driver.nvml.library import NvmlLibrary
from driver.ports.nvml import MigMode

log = logging.getLogger(__name__)

_ANSWERS: Final = (InUse, NoResources, NotFound, NotSupported, ResetRequired)
"""The GPU understood and said no. After any other error its handle is looked up anew."""


class NvmlPartitions:
    """Implements `driver.ports.nvml.MigLibrary`. Holds no lock while NVML works."""

    def __init__(self, library: NvmlLibrary) -> None:
        self._session = library.session
        self._boards = library.boards

    def mode(self, gpu: GpuUuid) -> MigMode:
        with self._on(gpu) as device:
            return _mode(device, gpu)

    def set_mode(self, gpu: GpuUuid, *, on: bool) -> None:
        with self._on(gpu) as device:
            before = _mode(device, gpu)
            if before == MigMode(enabled=on, pending=on):
                return
            try:
                activate("nvmlDeviceSetMigMode", device, int(on), gpu=gpu)
            except (InUse, ResetRequired):
                # What was refused now must not come true at the next reset or boot.
                if _mode(device, gpu).pending != before.pending:
                    activate("nvmlDeviceSetMigMode", device, int(before.pending), gpu=gpu)
                raise

    def instances(self, gpu: GpuUuid) -> tuple[InstanceFacts, ...]:
        with self._on(gpu) as device:
            mode = optional("nvmlDeviceGetMigMode", device, gpu=gpu)
            if mode is None or not mode[0]:
                return ()
            return read_instances(device, self._boards.of(device, gpu), gpu)

    def create(self, gpu: GpuUuid, profile: MigProfile, placement: Placement) -> int:
        about = f"{gpu}, {profile.name} at slot {placement.start}"
        wanted = pynvml.c_nvmlGpuInstancePlacement_t(placement.start, placement.size)
        with self._on(gpu) as device:
            instance = call(
                "nvmlDeviceCreateGpuInstanceWithPlacement",
                device,
                profile.id,
                ctypes.byref(wanted),
                gpu=about,
            )
            with _undone_on_error("nvmlGpuInstanceDestroy", instance, about):
                info = call("nvmlGpuInstanceGetInfo", instance, gpu=about)
                got = Placement(start=info.placement.start, size=info.placement.size)
                if got != placement:
                    raise NvmlError(
                        f"the driver put it at slot {got.start} with {got.size} slots instead",
                        call="nvmlDeviceCreateGpuInstanceWithPlacement",
                        code=pynvml.NVML_ERROR_UNKNOWN,
                        gpu=about,
                    )
                return int(info.id)

    def create_compute(self, gpu: GpuUuid, instance: int) -> ComputeFacts:
        about = _name(gpu, instance)
        with self._on(gpu) as device:
            parent = _find(device, instance, about)
            identifier = int(call("nvmlGpuInstanceGetInfo", parent, gpu=about).profileId)
            board = self._boards.of(device, gpu)
            owner = board.profile(identifier)
            chosen = whole_instance(
                board.compute_profiles(parent, identifier, about),
                slices=owner.compute_slices,
                about=about,
            )
            if chosen.multiprocessors < owner.multiprocessors:
                log.warning(
                    "no compute instance gets all multiprocessors of the GPU instance",
                    extra={
                        "gpu": gpu,
                        "profile": owner.name,
                        "owned": owner.multiprocessors,
                        "usable": chosen.multiprocessors,
                    },
                )
            made = call("nvmlGpuInstanceCreateComputeInstance", parent, chosen.id, gpu=about)
            with _undone_on_error("nvmlComputeInstanceDestroy", made, about):
                return compute_facts(made, about)

    def destroy_compute(self, gpu: GpuUuid, instance: int, compute: int) -> None:
        about = _name(gpu, instance, compute)
        with self._on(gpu) as device:
            parent = _find(device, instance, about)
            found = call("nvmlGpuInstanceGetComputeInstanceById", parent, compute, gpu=about)
            call("nvmlComputeInstanceDestroy", found, gpu=about)

    def destroy(self, gpu: GpuUuid, instance: int) -> None:
        about = _name(gpu, instance)
        with self._on(gpu) as device:
            call("nvmlGpuInstanceDestroy", _find(device, instance, about), gpu=about)

    def processes(self, gpu: GpuUuid, made: Made | None) -> int:
        with self._on(gpu) as device:
            where = device
            if made is not None:
                about = _name(gpu, made.instance, made.compute)
                parent = _find(device, made.instance, about)
                name = "nvmlGpuInstanceGetComputeInstanceById"
                found = call(name, parent, made.compute, gpu=about)
                where = call("nvmlComputeInstanceGetInfo", found, gpu=about).device
            return len(call("nvmlDeviceGetComputeRunningProcesses", where, gpu=gpu))

    @contextmanager
    def _on(self, gpu: GpuUuid) -> Iterator[Any]:
        with self._session.inside():
            try:
                yield self._session.handles.of(gpu)
            except _ANSWERS:
                raise
            except NvmlError:
                self._session.handles.drop(gpu)
                raise


def _name(gpu: GpuUuid, instance: int, compute: int | None = None) -> str:
    tail = "" if compute is None else f", compute instance {compute}"
    return f"{gpu}, GPU instance {instance}{tail}"


def _mode(device: Any, gpu: GpuUuid) -> MigMode:
    enabled, pending = call("nvmlDeviceGetMigMode", device, gpu=gpu)
    return MigMode(enabled=bool(enabled), pending=bool(pending))


def _find(device: Any, instance: int, about: str) -> Any:
    name = "nvmlDeviceGetGpuInstanceById"
    try:
        return call(name, device, instance, gpu=about)
    except NotSupported as error:
        if error.code != pynvml.NVML_ERROR_NOT_SUPPORTED:
            raise  # a driver without the function says nothing about the instance
        raise NotFound(
            "MIG is off, so there is no GPU instance", call=name, code=error.code, gpu=about
        ) from error


@contextmanager
def _undone_on_error(destroy: str, made: Any, about: str) -> Iterator[None]:
    try:
        yield
    except NvmlError as error:
        try:
            call(destroy, made, gpu=about)
        except NotFound:
            pass
        except NvmlError as second:
            raise InstanceLeft(
                f"what was made is still there, after {error}",
                call=destroy,
                code=second.code,
                gpu=about,
            ) from second
        raise
