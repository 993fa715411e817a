"""Whether a GPU has joined its NVLink fabric, and what the driver holds against that.

Why it exists: the answer is a mask of small fields, whose layout is NVML's.

Must not know how long joining may take.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import pynvml

from driver.core.health.readings.values import Fabric
from driver.core.ids import GpuUuid
from driver.nvml.calls import optional

_LAYOUTS: Final = (pynvml.c_nvmlGpuFabricInfo_v3_t, pynvml.c_nvmlGpuFabricInfo_v2_t)
"""Newest first; a driver refuses those that are younger than itself."""
_NOT_SUPPORTED: Final = 0
_COMPLETED: Final = 3
_TRUE: Final = 1
_UNHEALTHY: Final = 2
_LIMITED: Final = 3
_CONFIGURATION: Final = (8, 0xF)
_WRONG: Final = {
    2: "wrong system id",
    3: "wrong chassis",
    4: "no partition",
    5: "too few NVLinks",
    6: "incompatible firmware",
    7: "wrong location",
    8: "wrong GPU state",
}
_DEGRADED: Final = {0: "degraded bandwidth", 2: "a route recovers"}
_SICK: Final = {4: "unhealthy route", 6: "access time-outs"}
"""Notes by where their two bits are."""


def read_fabric(handle: Any, gpu: GpuUuid) -> Fabric | None:
    """None on a board that has no fabric."""
    for layout in _LAYOUTS:
        info = layout()
        if optional("nvmlDeviceGetGpuFabricInfoV", handle, ctypes.byref(info), gpu=gpu) is None:
            continue
        if info.state == _NOT_SUPPORTED:
            return None
        return _decode(info)
    return None


def _decode(info: Any) -> Fabric:
    mask = int(info.healthMask)
    summary = int(getattr(info, "healthSummary", 0))
    degraded = [text for shift, text in _DEGRADED.items() if mask >> shift & 3 == _TRUE]
    sick = [text for shift, text in _SICK.items() if mask >> shift & 3 == _TRUE]
    shift, width = _CONFIGURATION
    wrong = _WRONG.get(mask >> shift & width)
    if summary == _LIMITED:
        degraded.append("limited capacity")
    if summary == _UNHEALTHY and not (degraded or sick or wrong):
        sick.append("unhealthy")
    return Fabric(
        ready=info.state == _COMPLETED,
        status=int(info.status),
        degraded=bool(degraded),
        unhealthy=bool(sick) or summary == _UNHEALTHY,
        misconfigured=wrong is not None,
        notes=(*degraded, *sick, *([wrong] if wrong else [])),
    )
