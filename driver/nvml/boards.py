"""How each GPU can be cut, as NVML says it: the only source, there is no table of models.

A board answers the same as long as the driver is the same, with MIG on or off; the answer takes
some forty calls, so it is kept. Only complete answers are: a call that failed is made again.
"""

from __future__ import annotations

import ctypes
import logging
from typing import Any, Final

import pynvml

from driver.core.errors import NotSupported, NvmlError
from driver.core.geometry import Geometry, MigProfile, Placement
from driver.core.ids import GpuUuid
from driver.core.names import unfit
from driver.nvml.calls import call, optional, probe
from driver.nvml.compute import ComputeProfile, read_compute_profiles

log = logging.getLogger(__name__)

_PROFILE_INDEXES: Final = range(24)
"""NVML 13 has 18 indexes. Those of later drivers are taken as they come: the driver says what they
are.
"""
_WITH_NAME: Final = 2
"""The version of the profile structure that has a name."""


class Board:
    """One GPU under one driver. `geometry` has the profiles that can be published, None where there
    are none; `profiles` has all of them, without a name or a place too: somebody may have made one.
    """

    def __init__(self, profiles: tuple[MigProfile, ...], gpu: str) -> None:
        self.profiles = profiles
        self.geometry = _geometry(profiles, gpu)
        self._compute: dict[int, tuple[ComputeProfile, ...]] = {}

    def profile(self, identifier: int) -> MigProfile:
        """By the id that an instance carries."""
        for profile in self.profiles:
            if profile.id == identifier:
                return profile
        known = ", ".join(f"{p.id} ({p.name})" for p in self.profiles)
        raise NotSupported(
            f"a GPU instance has the unknown profile {identifier}; known are {known or 'none'}",
            call="nvmlDeviceGetGpuInstanceProfileInfo",
            code=pynvml.NVML_ERROR_NOT_SUPPORTED,
        )

    def compute_profiles(
        self, instance: Any, profile_id: int, gpu: str
    ) -> tuple[ComputeProfile, ...]:
        """Of a GPU instance with that profile; NVML tells them for an instance only."""
        known = self._compute.get(profile_id)
        if known is None:
            known = self._compute[profile_id] = read_compute_profiles(instance, gpu)
        return known


class Boards:
    """The boards of this node, each read once a driver version. For many threads."""

    def __init__(self) -> None:
        self._known: dict[tuple[GpuUuid, str], Board] = {}
        self._told: dict[GpuUuid, str] = {}

    def of(self, device: Any, gpu: GpuUuid) -> Board:
        key = (gpu, str(call("nvmlSystemGetDriverVersion")))
        board = self._known.get(key)
        if board is None:
            board = self._known[key] = Board(_read_profiles(device, gpu), gpu)
        return board

    def well(self, gpu: GpuUuid) -> None:
        self._told.pop(gpu, None)

    def failed(self, gpu: GpuUuid, error: NvmlError) -> None:
        """Told once, not at each rescan."""
        if self._told.get(gpu) != str(error):
            self._told[gpu] = str(error)
            log.warning(
                "MIG of a GPU cannot be read, no partition of it is offered until it can",
                extra={"gpu": gpu, "reason": str(error)},
            )


def _read_profiles(device: Any, gpu: str) -> tuple[MigProfile, ...]:
    found: list[MigProfile] = []
    for index in _PROFILE_INDEXES:
        info = probe("nvmlDeviceGetGpuInstanceProfileInfo", device, index, _WITH_NAME, gpu=gpu)
        if info is not None:
            found.append(_profile(index, info, _read_placements(device, int(info.id), gpu)))
    return tuple(found)


def _profile(index: int, info: Any, placements: tuple[Placement, ...]) -> MigProfile:
    return MigProfile(
        index=index,
        id=int(info.id),
        name=str(info.name).removeprefix("MIG ").strip(),
        compute_slices=int(info.sliceCount),
        memory_mib=int(info.memorySizeMB),
        max_instances=int(info.instanceCount),
        placements=placements,
        multiprocessors=int(info.multiprocessorCount),
        copy_engines=int(info.copyEngineCount),
        decoders=int(info.decoderCount),
        encoders=int(info.encoderCount),
        jpeg=int(info.jpegCount),
        ofa=int(info.ofaCount),
    )


def _read_placements(device: Any, profile_id: int, gpu: str) -> tuple[Placement, ...]:
    """None where NVML has none for this profile. The first call tells how many there are."""
    name = "nvmlDeviceGetGpuInstancePossiblePlacements"
    count = ctypes.c_uint()
    if optional(name, device, profile_id, None, ctypes.byref(count), gpu=gpu) is None:
        return ()
    room = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
    call(name, device, profile_id, room, ctypes.byref(count), gpu=gpu)
    return tuple(Placement(start=p.start, size=p.size) for p in room[: count.value])


def _geometry(profiles: tuple[MigProfile, ...], gpu: str) -> Geometry | None:
    odd = unfit(p.name for p in profiles if p.name and p.placements)
    usable: list[MigProfile] = []
    for profile in profiles:
        reason = odd.get(profile.name, "")
        if not profile.name or not profile.placements:
            reason = "the driver tells no name or no placement of it"
        if not reason:
            usable.append(profile)
            continue
        log.warning(
            "a MIG profile is not offered",
            extra={
                "gpu": gpu,
                "profile": profile.name or f"index {profile.index}",
                "reason": reason,
            },
        )
    if not usable:
        return None
    slots = max(p.start + p.size for each in profiles for p in each.placements)
    return Geometry(slots=slots, profiles=tuple(usable))
