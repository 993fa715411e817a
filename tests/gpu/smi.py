"""What nvidia-smi says, as the same values that the adapter gives: an independent witness."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

Facts = dict[str, Any]


def run(program: Path, *words: str) -> str | None:
    """None where it is not there, or does not know what it was asked."""
    if not program.exists():
        return None
    done = subprocess.run(
        [str(program), *words], capture_output=True, text=True, timeout=60, check=False
    )
    return None if done.returncode else done.stdout


def listed(text: str) -> list[tuple[int, str, str]]:
    """(index, product, UUID) of each GPU in `nvidia-smi -L`."""
    found = re.findall(r"^GPU (\d+): (.+) \(UUID: (GPU-[0-9a-f-]+)\)$", text, re.MULTILINE)
    return [(int(index), product, uuid) for index, product, uuid in found]


def queried(text: str) -> tuple[Facts, list[Facts]]:
    """The driver's and each GPU's facts in `nvidia-smi -q -x`; what it calls N/A is None."""
    log = ET.fromstring(text)
    driver = {"driver": _text(log, "driver_version"), "cuda": _text(log, "cuda_version")}
    return driver, [_gpu(each) for each in log.findall("gpu")]


def _gpu(gpu: ET.Element) -> Facts:
    memory = _text(gpu, "fb_memory_usage/total")
    return {
        "uuid": _text(gpu, "uuid"),
        "product": _text(gpu, "product_name"),
        "architecture": _text(gpu, "product_architecture"),
        "serial": _text(gpu, "serial"),
        "minor": int(str(_text(gpu, "minor_number"))),
        "pci": _address(str(gpu.get("id"))),
        "memory_mib": None if memory is None else int(memory.removesuffix(" MiB")),
        "mig": tuple(_text(gpu, f"mig_mode/{which}_mig") for which in ("current", "pending")),
    }


def _text(element: ET.Element, path: str) -> str | None:
    text = element.findtext(path, "N/A").strip()
    return None if text in {"N/A", "[N/A]", "Requested functionality has been deprecated"} else text


def _address(text: str) -> str:
    """`00000000:1B:00.0` as the kernel writes it."""
    domain, rest = text.lower().split(":", 1)
    return f"{int(domain, 16):04x}:{rest}"
