"""Lines of the NVIDIA driver, and of the PCI bus under it, that carry no Xid.

Why it exists: a GPU that cannot be initialised, that the bus lost at probe time, or whose firmware
stopped answering often never gets an Xid. Must not know what follows for a device.

Source: the printing code of NVIDIA's open kernel modules; Linux' PCIe error reporting.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from driver.core.health.kernel.address import BDF, address
from driver.core.ids import GpuUuid
from driver.core.snapshot import PciAddress


class Trouble(StrEnum):
    """What the line is about. The values are names of faults."""

    GSP_ERRORS = "gsp-rpc-errors"
    GSP_TIMEOUT = "gsp-rpc-timeout"
    INIT_FAILED = "init-failed"
    BAR_FIREWALL = "bar-firewall"
    PROBE_FAILED = "driver-probe-failed"
    BAD_REGION = "pci-region-invalid"
    REMOVED_IN_USE = "removed-in-use"
    FOREIGN_DRIVER = "foreign-driver"
    UNSUPPORTED = "unsupported-by-driver"
    NVLINK_DETECT = "nvlink-detect-failed"
    NVLINK_TRAINING = "nvlink-training-failed"
    API_MISMATCH = "api-mismatch"
    CRASH_DUMP = "crash-dump"
    AER_CORRECTED = "pcie-corrected"
    AER_NONFATAL = "pcie-nonfatal"
    AER_FATAL = "pcie-fatal"
    NCCL_SEGFAULT = "nccl-segfault"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverLine:
    """`address`, `minor` (of /dev/nvidiaN) and `link`: None where the line does not say."""

    trouble: Trouble
    text: str
    address: PciAddress | None = None
    minor: int | None = None
    link: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FallenOff:
    """Off the bus, told without an Xid. `address` None: the line that named it was lost."""

    address: PciAddress | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuNamed:
    """Which GPU sits where, told once before the first Xid of a GPU: no NVML needed."""

    address: PciAddress
    gpu: GpuUuid


_ON: Final = rf"(?:GPU )?(?:PCI:)?(?P<bdf>{BDF})"
_OFF: Final = re.compile(rf"NVRM: GPU (?:at )?(?:PCI:)?(?P<bdf>{BDF}):? GPU has fallen off the bus")
_NAMED: Final = re.compile(
    rf"NVRM: GPU at PCI:(?P<bdf>{BDF}): (?P<uuid>GPU-[0-9a-fA-F-]{{36}})\s*$"
)
_NVRM: Final = tuple(
    (trouble, re.compile(f"NVRM: {pattern}"))
    for trouble, pattern in (
        (Trouble.GSP_ERRORS, rf"Rate limiting GSP RPC error prints for GPU at PCI:(?P<bdf>{BDF})"),
        (Trouble.GSP_TIMEOUT, r"(?:\w+ )?(?:\w+: )?Timeout after \d+s of waiting for RPC response"),
        (Trouble.INIT_FAILED, rf"(?:{_ON}: )?RmInitAdapter failed!"),
        (
            Trouble.INIT_FAILED,
            rf"(?:{_ON}: )?rm_init_adapter failed, device minor number (?P<minor>\d{{1,4}})",
        ),
        (Trouble.INIT_FAILED, rf"(?:{_ON}: )?rm_init_adapter failed"),
        (Trouble.BAR_FIREWALL, rf"(?:{_ON}:? )?failed to wait for bar firewall to lower"),
        (Trouble.PROBE_FAILED, r"The NVIDIA probe routine failed for \d+ device"),
        (Trouble.BAD_REGION, r"This PCI I/O region assigned to your NVIDIA device is invalid"),
        (Trouble.BAD_REGION, rf"BAR\d is \d+M @ 0x[0-9a-fA-F]+ \(PCI:(?P<bdf>{BDF})\)"),
        (
            Trouble.REMOVED_IN_USE,
            rf"Attempting to remove device (?P<bdf>{BDF}) with non-zero usage count",
        ),
        (Trouble.FOREIGN_DRIVER, rf"{_ON} is already "),
        (
            Trouble.NVLINK_DETECT,
            r"(?:GPU\d+ )?knvlink(?:UpdatePostRxDetectLinkMask|DiscoverPostRxDetLinks)\w*: ",
        ),
        (
            Trouble.NVLINK_TRAINING,
            rf".*?NVLink: failed to train link (?P<link>\d{{1,3}}) to remote PCI:(?P<bdf>{BDF})",
        ),
        (Trouble.API_MISMATCH, r"API mismatch: the client"),
        (Trouble.CRASH_DUMP, r"A GPU crash dump has been created"),
    )
)
_AER: Final = re.compile(
    rf"[\w-]{{1,32}} (?P<bdf>{BDF}): (?:AER: )?(?:PCIe Bus Error: severity=)?"
    r"(?:Multiple )?(?P<severity>Correct(?:ed|able)|Uncorrect(?:ed|able) \((?:Non-)?Fatal\))"
    rf"(?: error (?:message )?received(?::| from) (?P<from>{BDF}))?"
)
_SEGFAULT: Final = re.compile(r".{1,32}\[\d{1,10}\]: segfault at .* in libnccl\.so")


def parse_driver_line(line: str) -> DriverLine | FallenOff | GpuNamed | None:
    """A line that starts with `NVRM: ` and is no Xid; None where we know nothing of it."""
    named = _NAMED.match(line)
    if named is not None and (where := address(named["bdf"])) is not None:
        return GpuNamed(address=where, gpu=GpuUuid(named["uuid"]))
    off = _OFF.match(line)
    if off is not None:
        return FallenOff(address=address(off["bdf"]))
    for trouble, pattern in _NVRM:
        found = pattern.match(line)
        if found is not None:
            parts = found.groupdict()
            return DriverLine(
                trouble=trouble,
                text=line,
                address=address(parts.get("bdf") or ""),
                minor=_number(parts.get("minor")),
                link=_number(parts.get("link")),
            )
    return None


def parse_neighbour(line: str) -> DriverLine | None:
    """PCIe error reporting, of any device, and crashes in NCCL."""
    found = _AER.match(line)
    if found is not None:
        where = address(found["from"] or found["bdf"])
        return DriverLine(trouble=_severity(found["severity"]), text=line, address=where)
    if _SEGFAULT.match(line):
        return DriverLine(trouble=Trouble.NCCL_SEGFAULT, text=line)
    return None


def _severity(text: str) -> Trouble:
    if text.startswith("Correct"):
        return Trouble.AER_CORRECTED
    return Trouble.AER_NONFATAL if "Non-Fatal" in text else Trouble.AER_FATAL


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
