"""Fills a fresh machine from boards and seats.

Why it exists: everything a healthy idle machine answers is set here once, so that the library
starts from zeroes and the kit only changes things.
"""

from __future__ import annotations

import hashlib
from typing import Final, Protocol

from hack.simnvml.boards import ADDRESSING, ARCHITECTURES, Board, board
from hack.simnvml.presets import Identity, Preset, Seat, boot_id, identities

MIB: Final = 1 << 20
NVIDIA_VENDOR: Final = 0x10DE
BRAND_NVIDIA: Final = 14
BRAND_TESLA: Final = 2
CORES: Final = 128
ECC_BANKS: Final = 1280

EVENTS: Final = 0x1 | 0x2 | 0x8 | 0x10 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800 | 0x1000 | 0x2000
EVENTS_SINCE_610: Final = 0x4000 | 0x8000
SYMBOLS_SINCE_610: Final = (
    "nvmlEventSetWait_v3",
    "nvmlDeviceGetGpuFabricInfo_v4",
    "nvmlDeviceGetRemappedRows_v2",
    "nvmlDeviceGetUnrepairableMemoryFlag_v1",
)
FABRIC_COMPLETED: Final = 3
FABRIC_HEALTHY: Final = 1
# "no" (2) for degraded bandwidth, route recovery, unhealthy route, access timeout; no wrong
# configuration (1).
FABRIC_HEALTH_MASK: Final = 2 | 2 << 2 | 2 << 4 | 2 << 6 | 1 << 8

FieldValue = int | str | bytes | list[int] | None


class Settable(Protocol):
    """What assembly needs of a machine or a GPU."""

    def set(self, **fields: FieldValue) -> None: ...


class Assembly(Protocol):
    """What assembly needs of the kit's machine."""

    def set(self, **fields: FieldValue) -> None: ...
    def gpu(self, index: int) -> Settable: ...
    def add_profile(self, gpu: int, board: Board, position: int) -> None: ...


def assemble(machine: Assembly, preset: Preset, *, seed: str, driver: str | None) -> None:
    """Makes `machine` what `preset` says, with identities from `seed`."""
    version = driver if driver is not None else preset.driver
    major = int(version.split(".")[0])
    machine.set(**_system(version, major, seed))
    count = len(preset.boards)
    nodes = 1 + max(seat.numa for seat in preset.seats)
    for index, (key, seat, who) in enumerate(
        zip(preset.boards, preset.seats, identities(seed, count), strict=False)
    ):
        b = board(key)
        gpu = machine.gpu(index)
        gpu.set(**_identity(b, who, index), **_seat(seat, nodes))
        gpu.set(**_figures(b), **_links(b, index))
        gpu.set(event_types=EVENTS | (EVENTS_SINCE_610 if major >= 610 else 0))
        for position in range(len(b.profiles)):
            machine.add_profile(index, b, position)
        gpu.set(present=1)


def _system(version: str, major: int, seed: str) -> dict[str, FieldValue]:
    cuda = 13000 if major >= 580 else 12040 if major >= 550 else 12020
    return {
        "driver": version,
        "nvml": f"{cuda // 1000}.{version}",
        "cuda": cuda,
        "branch": f"r{major}",
        "boot_id": boot_id(seed, 0),
        "absent": "" if major >= 610 else ",".join(SYMBOLS_SINCE_610),
        "major_uvm": 510,
        "major_caps": 511,
        "random": int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big"),
    }


def _identity(b: Board, who: Identity, index: int) -> dict[str, FieldValue]:
    major, minor = b.compute_capability
    return {
        "name": b.product,
        "uuid": who.uuid,
        "serial": who.serial,
        "vbios": "96.00.9F.00.01",
        "part_number": f"900-2{b.pci_device_id:04X}-0000-000",
        "minor": index,
        # Only boards on a baseboard have a module id.
        "module_id": index + 1 if b.nvlinks else None,
        "cc_major": major,
        "cc_minor": minor,
        "arch": ARCHITECTURES[b.arch],
        "brand": BRAND_TESLA if b.product.startswith("Tesla") else BRAND_NVIDIA,
        "device_id": b.pci_device_id << 16 | NVIDIA_VENDOR,
        "subsystem_id": 0x16C1 << 16 | NVIDIA_VENDOR,
    }


def _seat(seat: Seat, nodes: int) -> dict[str, FieldValue]:
    per_node = CORES // nodes
    mask = ((1 << per_node) - 1) << (seat.numa * per_node)
    return {
        "bus": seat.bus,
        "board_id": seat.bus << 8,
        "pci_root": seat.root,
        "pci_switch": seat.switch,
        "numa": seat.numa,
        "cpu_mask": [mask >> (64 * word) & (2**64 - 1) for word in range(4)],
    }


def _figures(b: Board) -> dict[str, FieldValue]:
    return {
        "mem_total": b.memory_mib * MIB,
        "mem_reserved": b.memory_mib * MIB // 140 // MIB * MIB,
        "bar1_total": b.bar1_mib * MIB,
        "mig_capable": int(bool(b.profiles)),
        "mig_needs_reset": int(b.mig_needs_reset),
        "slots": b.slots,
        "gi_slices": b.gi_slices,
        "temp": 34,
        "temp_slowdown": 87,
        "temp_shutdown": 92,
        "power_mw": b.power_limit_w * 100,
        "power_limit_mw": b.power_limit_w * 1000,
        "persistence": 1,
        "gsp": 1,
        "ecc": 1,
        "clock_reasons": 1,  # idle
        "addressing": ADDRESSING[b.addressing],
        "pcie_gen": b.pcie_generation,
        "pcie_gen_max": b.pcie_generation,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "retired_pages": None,  # of boards before Ampere
        "remap_histogram": [ECC_BANKS, 0, 0, 0, 0],
    }


def _links(b: Board, index: int) -> dict[str, FieldValue]:
    fields: dict[str, FieldValue] = {"nvlinks": b.nvlinks, "nvlink_up": (1 << b.nvlinks) - 1}
    if b.fabric:
        fields |= {
            "fabric_state": FABRIC_COMPLETED,
            "fabric_health": FABRIC_HEALTH_MASK,
            "fabric_summary": FABRIC_HEALTHY,
        }
    if b.fabric and b.addressing == "ats":  # a tray of a rack: one cluster, one clique
        fields |= {
            "fabric_cluster": hashlib.sha256(b"rack").digest()[:16],
            "fabric_clique": 1,
            "chassis_serial": b"1820325190001\0\0\0",
            "slot_number": 1,
            "tray_index": index // 4,
            "host_id": 1,
        }
    return fields
