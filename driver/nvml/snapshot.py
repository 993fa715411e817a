"""Everything about every GPU, in one go: tolerant where a field may be missing, loud elsewhere.

A board or driver without an optional field gives None for it. A GPU without a required one (UUID,
name, PCI address, minor number) cannot be handed out: it is reported as lost, with the field's
name, and the others go on.
"""

from __future__ import annotations

import ctypes
import uuid
from dataclasses import replace
from typing import Any, Final

import pynvml

from driver.core.errors import DriverNotLoaded, GpuLost, NvmlError
from driver.core.ids import GpuUuid
from driver.core.snapshot import (
    DriverFacts,
    GpuFacts,
    LostGpu,
    MigState,
    NodeSnapshot,
    PciAddress,
)
from driver.nvml.boards import Boards
from driver.nvml.calls import call, optional
from driver.nvml.handles import Handles
from driver.nvml.instances import read_instances
from driver.ports.nvml import PciTopology

_BRANDS: Final = {
    pynvml.NVML_BRAND_QUADRO: "Quadro",
    pynvml.NVML_BRAND_TESLA: "Tesla",
    pynvml.NVML_BRAND_NVS: "NVS",
    pynvml.NVML_BRAND_GRID: "Grid",
    pynvml.NVML_BRAND_GEFORCE: "GeForce",
    pynvml.NVML_BRAND_TITAN: "Titan",
    pynvml.NVML_BRAND_QUADRO_RTX: "QuadroRTX",
    pynvml.NVML_BRAND_NVIDIA_RTX: "NvidiaRTX",
    pynvml.NVML_BRAND_NVIDIA: "Nvidia",
    pynvml.NVML_BRAND_GEFORCE_RTX: "GeForceRTX",
    pynvml.NVML_BRAND_TITAN_RTX: "TitanRTX",
}
_ARCHITECTURES: Final = {
    pynvml.NVML_DEVICE_ARCH_KEPLER: "Kepler",
    pynvml.NVML_DEVICE_ARCH_MAXWELL: "Maxwell",
    pynvml.NVML_DEVICE_ARCH_PASCAL: "Pascal",
    pynvml.NVML_DEVICE_ARCH_VOLTA: "Volta",
    pynvml.NVML_DEVICE_ARCH_TURING: "Turing",
    pynvml.NVML_DEVICE_ARCH_AMPERE: "Ampere",
    pynvml.NVML_DEVICE_ARCH_ADA: "Ada Lovelace",
    pynvml.NVML_DEVICE_ARCH_HOPPER: "Hopper",
    pynvml.NVML_DEVICE_ARCH_BLACKWELL: "Blackwell",
    13: "Rubin",  # the oldest binding that we take has no name for it
}
_ADDRESSING: Final = {1: "HMM", 2: "ATS"}
_SWITCHABLE: Final = (9, 0)
"""From this compute capability on (Hopper), the MIG mode changes without a reset of the GPU."""
_FABRIC_COMPLETED: Final = 3
_FABRIC_LAYOUTS: Final = (pynvml.c_nvmlGpuFabricInfo_v3_t, pynvml.c_nvmlGpuFabricInfo_v2_t)
"""Newest first; a driver refuses those that are younger than itself."""


def take_snapshot(topology: PciTopology, boards: Boards, handles: Handles) -> NodeSnapshot:
    """DriverNotLoaded where NVML as a whole does not answer; one GPU's trouble stays its own.

    `handles` gets those of the GPUs that were read.
    """
    driver = DriverFacts(driver=str(call("nvmlSystemGetDriverVersion")), cuda=_cuda_version())
    gpus: list[GpuFacts] = []
    lost: list[LostGpu] = []
    for index in range(int(call("nvmlDeviceGetCount"))):
        try:
            gpus.append(_read_gpu(index, topology, boards, handles))
        except DriverNotLoaded:
            raise
        except NvmlError as error:
            lost.append(LostGpu(where=f"GPU {index}", reason=str(error)))
    return NodeSnapshot(driver=driver, gpus=tuple(gpus), lost=tuple(lost))


def _cuda_version() -> tuple[int, int] | None:
    """NVML gives 13000 for CUDA 13.0."""
    number = optional("nvmlSystemGetCudaDriverVersion_v2", gpu="")
    return None if number is None else (number // 1000, number % 1000 // 10)


def _read_gpu(index: int, topology: PciTopology, boards: Boards, handles: Handles) -> GpuFacts:
    gpu = f"GPU {index}"
    handle = call("nvmlDeviceGetHandleByIndex", index, gpu=gpu)
    info = call("nvmlDeviceGetPciInfo", handle, gpu=gpu)
    pci = PciAddress(domain=info.domain, bus=info.bus, device=info.device)
    memory = optional("nvmlDeviceGetMemoryInfo", handle, gpu=gpu)
    identity = GpuUuid(call("nvmlDeviceGetUUID", handle, gpu=gpu))
    capability = _pair(optional("nvmlDeviceGetCudaComputeCapability", handle, gpu=gpu))
    facts = GpuFacts(
        uuid=identity,
        index=index,
        minor=int(call("nvmlDeviceGetMinorNumber", handle, gpu=gpu)),
        pci=pci,
        product=str(call("nvmlDeviceGetName", handle, gpu=gpu)),
        memory=None if memory is None else int(memory.total),
        mig=_mig_mode(handle, gpu, switchable=capability is not None and capability >= _SWITCHABLE),
        brand=_BRANDS.get(optional("nvmlDeviceGetBrand", handle, gpu=gpu)),
        architecture=_ARCHITECTURES.get(optional("nvmlDeviceGetArchitecture", handle, gpu=gpu)),
        compute_capability=capability,
        serial=optional("nvmlDeviceGetSerial", handle, gpu=gpu),
        numa_node=topology.numa_node(pci),
        pcie_root=topology.pcie_root(pci),
        addressing_mode=_ADDRESSING.get(
            optional("nvmlDeviceGetAddressingMode", handle, gpu=gpu) or 0
        ),
        nvlink_domain=_nvlink_domain(handle, gpu),
    )
    handles.keep(identity, handle)
    return replace(facts, mig=_mig_state(handle, facts, boards))


def _pair(value: Any) -> tuple[int, int] | None:
    return None if value is None else (int(value[0]), int(value[1]))


def _mig_mode(handle: Any, gpu: str, *, switchable: bool) -> MigState:
    mode = optional("nvmlDeviceGetMigMode", handle, gpu=gpu)
    if mode is None:
        return MigState(capable=False)
    return MigState(
        capable=True, enabled=bool(mode[0]), pending=bool(mode[1]), switchable=switchable
    )


def _mig_state(handle: Any, facts: GpuFacts, boards: Boards) -> MigState:
    """With geometry and instances. Without both where one of them cannot be read: instances alone
    being empty would say that nothing is there.
    """
    mig = facts.mig
    if not mig.capable:
        return mig
    try:
        board = boards.of(handle, facts.uuid)
        instances = read_instances(handle, board, facts.uuid) if mig.enabled else ()
    except (DriverNotLoaded, GpuLost):
        raise
    except NvmlError as error:
        boards.failed(facts.uuid, error)
        return replace(mig, unread=str(error))
    boards.well(facts.uuid)
    return replace(mig, geometry=board.geometry, instances=instances)


def _nvlink_domain(handle: Any, gpu: str) -> str | None:
    """`<cluster UUID>.<clique>` of a multi-node NVLink fabric; None outside one."""
    for layout in _FABRIC_LAYOUTS:
        info = layout()
        if optional("nvmlDeviceGetGpuFabricInfoV", handle, ctypes.byref(info), gpu=gpu) is None:
            continue
        cluster = bytes(info.clusterUuid)
        if info.state != _FABRIC_COMPLETED or not any(cluster):
            return None
        return f"{uuid.UUID(bytes=cluster)}.{info.cliqueId}"
    return None
