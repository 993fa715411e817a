"""What is cut out of a GPU now: GPU instances, each with its compute instances.

Walks GPU instances, not MIG devices: one without a compute instance has no device, and would be
invisible while it holds its slots. Must not know who made them.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import pynvml

from driver.core.errors import NvmlError
from driver.core.geometry import MigProfile, Placement
from driver.core.snapshot import ComputeFacts, InstanceFacts
from driver.nvml.boards import Board
from driver.nvml.calls import call, optional

_ATTEMPTS: Final = 25
"""Partitions come and go in milliseconds at most; what still fails then is another trouble."""
_VANISHED: Final = (pynvml.NVML_ERROR_INVALID_ARGUMENT, pynvml.NVML_ERROR_NOT_FOUND)
"""What NVML answers for the handle of an instance that is gone."""


def read_instances(device: Any, board: Board, gpu: str) -> tuple[InstanceFacts, ...]:
    """By id. MIG is on."""
    found = [each for profile in board.profiles for each in _read(device, board, profile, gpu)]
    return tuple(sorted(found, key=lambda instance: instance.id))


def _read(device: Any, board: Board, profile: MigProfile, gpu: str) -> list[InstanceFacts]:
    """Those of one profile. Where one goes while we look, we look again: that it is gone is shown
    by a listing without it, never by an error.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        room = (pynvml.c_nvmlGpuInstance_t * profile.max_instances)()
        try:
            handles = _handles("nvmlDeviceGetGpuInstances", device, profile.id, room, gpu)
            return [_instance(handle, board, gpu) for handle in handles]
        except NvmlError as error:
            if error.code not in _VANISHED or attempt == _ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")


def _instance(handle: Any, board: Board, gpu: str) -> InstanceFacts:
    info = call("nvmlGpuInstanceGetInfo", handle, gpu=gpu)
    compute = [
        compute_facts(each, gpu)
        for profile in board.compute_profiles(handle, int(info.profileId), gpu)
        for each in _handles(
            "nvmlGpuInstanceGetComputeInstances",
            handle,
            profile.id,
            (pynvml.c_nvmlComputeInstance_t * profile.most)(),
            gpu,
        )
    ]
    return InstanceFacts(
        id=int(info.id),
        profile_id=int(info.profileId),
        placement=Placement(start=int(info.placement.start), size=int(info.placement.size)),
        compute=tuple(sorted(compute)),
    )


def compute_facts(handle: Any, gpu: str) -> ComputeFacts:
    """The UUID is that of the MIG device which NVML names for the instance."""
    info = call("nvmlComputeInstanceGetInfo", handle, gpu=gpu)
    return ComputeFacts(id=int(info.id), uuid=str(call("nvmlDeviceGetUUID", info.device, gpu=gpu)))


def _handles(name: str, owner: Any, profile_id: int, room: Any, gpu: str) -> list[Any]:
    """`room` must hold as many as the profile allows: NVML does not ask how much there is."""
    count = ctypes.c_uint()
    if optional(name, owner, profile_id, room, ctypes.byref(count), gpu=gpu) is None:
        return []
    return list(room[: count.value])
