"""Short forms of what every test here says about NVML."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml as n
import pytest

from hack.simnvml.kit import Machine

needs_new_binding = pytest.mark.skipif(
    not hasattr(n, "c_nvmlEventSetWait_v3_t"), reason="nvidia-ml-py before 13.610 lacks these calls"
)

REPOSITORY = Path(__file__).resolve().parents[2]


def code_of(call: Callable[..., object], *args: Any) -> int:
    """The NVML return code of a call."""
    try:
        call(*args)
    except n.NVMLError as error:
        return int(error.value)
    return 0


def start(index: int = 0, *, mig: bool = False) -> Any:
    """Initialises NVML and gives the handle of one GPU, in MIG mode if wanted."""
    n.nvmlInit()
    handle = n.nvmlDeviceGetHandleByIndex(index)
    if mig:
        assert n.nvmlDeviceSetMigMode(handle, 1) == n.NVML_SUCCESS
    return handle


def profiles(handle: Any) -> dict[str, Any]:
    """Profile info by name without the MIG prefix."""
    found = {}
    for index in range(n.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            info = n.nvmlDeviceGetGpuInstanceProfileInfo(handle, index, 2)
        except n.NVMLError_NotSupported:
            continue
        found[info.name.removeprefix("MIG ")] = info
    return found


def placements(handle: Any, profile_id: int) -> list[tuple[int, int]]:
    """(start, size) of every possible placement."""
    count = ctypes.c_uint()
    n.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile_id, None, ctypes.byref(count))
    array = (n.c_nvmlGpuInstancePlacement_t * count.value)()
    n.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile_id, array, ctypes.byref(count))
    return [(place.start, place.size) for place in array]


def create(handle: Any, profile_id: int, at: int, size: int) -> Any:
    """A GPU instance at that place."""
    place = n.c_nvmlGpuInstancePlacement_t(at, size)
    return n.nvmlDeviceCreateGpuInstanceWithPlacement(handle, profile_id, ctypes.byref(place))


def partition(handle: Any, name: str = "1g.10gb") -> tuple[Any, Any, str]:
    """A GPU instance with one compute instance that owns all of it, and the MIG device's UUID."""
    gi = n.nvmlDeviceCreateGpuInstance(handle, profiles(handle)[name].id)
    slices = profiles(handle)[name].sliceCount
    whole = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}[slices]
    ci = n.nvmlGpuInstanceCreateComputeInstance(gi, whole)
    return gi, ci, n.nvmlDeviceGetUUID(n.nvmlComputeInstanceGetInfo(ci).device)


def child(code: str, machine: Machine, **popen: Any) -> subprocess.Popen[str]:
    """A Python process with pynvml as `n` and the machine as `m`, NVML not yet initialised."""
    prelude = (
        "from hack.simnvml.testing import preload; preload()\n"
        "from hack.simnvml.kit import Machine\n"
        f"import pynvml as n; m = Machine.open({str(machine.path)!r})\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", prelude + code],
        cwd=REPOSITORY,
        env=os.environ | {"SIMNVML_STATE": str(machine.path)},
        stdout=subprocess.PIPE,
        text=True,
        **popen,
    )
