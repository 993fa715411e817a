"""Capability device minors of MIG, numbered as NVIDIA's kernel module numbers them.

Why it exists: a container may use a partition only with the capability nodes of its GPU instance
and compute instance; their minors follow from (GPU minor, GI id, CI id).
"""

from __future__ import annotations

from typing import Final

from hack.simnvml.gpu import Gpu

CONFIG: Final = 1
MONITOR: Final = 2
FIRST_INSTANCE: Final = 3
GPUS: Final = 32
GPU_INSTANCES: Final = 15
COMPUTE_INSTANCES: Final = 8
PER_INSTANCE: Final = 1 + COMPUTE_INSTANCES
PER_GPU: Final = GPU_INSTANCES * PER_INSTANCE


def gi_minor(gpu: int, gi: int) -> int:
    """The minor of a GPU instance's access node."""
    return FIRST_INSTANCE + gpu * PER_GPU + gi * PER_INSTANCE


def ci_minor(gpu: int, gi: int, ci: int) -> int:
    """The minor of a compute instance's access node."""
    return gi_minor(gpu, gi) + 1 + ci


def mig_minors() -> str:
    """`/proc/driver/nvidia-caps/mig-minors`: the whole table, whatever exists."""
    lines = [f"config {CONFIG}", f"monitor {MONITOR}"]
    for gpu in range(GPUS):
        for gi in range(GPU_INSTANCES):
            lines.append(f"gpu{gpu}/gi{gi}/access {gi_minor(gpu, gi)}")
            lines += [
                f"gpu{gpu}/gi{gi}/ci{ci}/access {ci_minor(gpu, gi, ci)}"
                for ci in range(COMPUTE_INSTANCES)
            ]
    return "\n".join(lines) + "\n"


def capability_files(gpu: Gpu, *, ahead: bool) -> dict[str, int]:
    """Path below `/proc/driver/nvidia/capabilities` to minor: of the instances that exist, or
    `ahead` of all that could, so that a driver which creates one finds its files at once.
    """
    if not gpu.get("mig_capable"):
        return {}
    if ahead:
        ids = {(gi, ci) for gi in range(GPU_INSTANCES) for ci in (None, *range(COMPUTE_INSTANCES))}
    else:
        live = gpu.instances()
        ids = {(instance.gi, None) for instance in live} | {(i.gi, i.ci) for i in live}
    files: dict[str, int] = {}
    for gi, ci in ids:
        base = f"gpu{gpu.minor}/mig/gi{gi}"
        if ci is None:
            files[f"{base}/access"] = gi_minor(gpu.minor, gi)
        else:
            files[f"{base}/ci{ci}/access"] = ci_minor(gpu.minor, gi, ci)
    return files
