"""Compute instances: which kinds a GPU instance offers, and which of them is all of it.

A GPU instance is memory and engines; a container opens a compute instance in it. `nvidia-smi mig
-C` makes the kind that the driver marks as default, and NVML does not tell the mark. Two kinds may
cover all slices and yet differ: the plain one of a double-memory 1g gets the multiprocessors of one
slice, where the instance owns more (Hopper and later).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import pynvml

from driver.core.errors import NotSupported
from driver.nvml.calls import call, probe

_INDEXES: Final = range(12)
"""NVML 13 has 9; those of later drivers are taken as they come."""
_VERSION: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeProfile:
    """One kind of compute instance; `most` is how many of it fit into the GPU instance."""

    id: int
    slices: int
    multiprocessors: int
    most: int


def read_compute_profiles(instance: Any, gpu: str) -> tuple[ComputeProfile, ...]:
    found: list[ComputeProfile] = []
    for index in _INDEXES:
        info = probe(
            "nvmlGpuInstanceGetComputeInstanceProfileInfo",
            instance,
            index,
            pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED,
            _VERSION,
            gpu=gpu,
        )
        if info is not None:
            found.append(
                ComputeProfile(
                    id=int(info.id),
                    slices=int(info.sliceCount),
                    multiprocessors=int(info.multiprocessorCount),
                    most=int(info.instanceCount),
                )
            )
    # "No such index" and "no such instance" are one code: an error here says that it was the latter
    call("nvmlGpuInstanceGetInfo", instance, gpu=gpu)
    return tuple(found)


def whole_instance(
    profiles: Iterable[ComputeProfile], *, slices: int, about: str
) -> ComputeProfile:
    """The default: all slices and the most multiprocessors; the plain kind (lowest id) of equals,
    as older boards list the other one of a 7g and refuse to make it.
    """
    covering = [p for p in profiles if p.slices == slices]
    if not covering:
        raise NotSupported(
            f"no kind of compute instance covers its {slices} compute slices; leave its profile"
            " out of the offered ones",
            call="nvmlGpuInstanceGetComputeInstanceProfileInfo",
            code=pynvml.NVML_ERROR_NOT_SUPPORTED,
            gpu=about,
        )
    return max(covering, key=lambda p: (p.multiprocessors, -p.id))
