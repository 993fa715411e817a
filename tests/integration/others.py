"""Somebody else on the node who cuts GPUs: an administrator, or another tool."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

from hack.testbed import REPO, Testbed

_MAKE: Final = """
import sys
from hack.simnvml.testing import preload
preload()
import pynvml as n
from tests.simnvml.helpers import create, placements, profiles
n.nvmlInit()
uuid, name, start = sys.argv[1], sys.argv[2], int(sys.argv[3])
gpu = n.nvmlDeviceGetHandleByUUID(uuid)
if not n.nvmlDeviceGetMigMode(gpu)[0]:
    assert n.nvmlDeviceSetMigMode(gpu, 1) == 0
profile = profiles(gpu)[name]
((at, size),) = [p for p in placements(gpu, profile.id) if p[0] == start]
made = create(gpu, profile.id, at, size)
if "bare" not in sys.argv:
    n.nvmlGpuInstanceCreateComputeInstance(made, {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}[profile.sliceCount])
"""
_DESTROY: Final = """
import sys
from hack.simnvml.testing import preload
preload()
import pynvml as n
n.nvmlInit()
gi = n.nvmlDeviceGetGpuInstanceById(n.nvmlDeviceGetHandleByUUID(sys.argv[1]), int(sys.argv[2]))
n.nvmlComputeInstanceDestroy(n.nvmlGpuInstanceGetComputeInstanceById(gi, 0))
n.nvmlGpuInstanceDestroy(gi)
"""


def make(bed: Testbed, gpu: int, profile: str, start: int, *, bare: bool = False) -> None:
    """A GPU instance at that place, with a compute instance unless it is `bare`."""
    _run(bed, _MAKE, bed.machine.gpu(gpu).uuid, profile, str(start), *(["bare"] if bare else []))


def destroy(bed: Testbed, gpu: int, instance: int) -> None:
    _run(bed, _DESTROY, bed.machine.gpu(gpu).uuid, str(instance))


def _run(bed: Testbed, code: str, *arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=REPO,
        env=os.environ | {"SIMNVML_STATE": str(bed.machine.path)},
        check=True,
        timeout=60,
    )
