"""What the simulated boards are made of: `boards.json`, typed.

Why it exists: geometry and figures are facts about hardware, kept as data; the library gets them
through calls and holds no table of models itself. The figures come from public listings
(`nvidia-smi mig -lgip` and `-lgipp` prints, NVIDIA's MIG user guide); a value that no listing
confirms follows the rule of its class and is named under `derived`.

Must not know: the driver under test. Its view of geometry comes from NVML alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

DATA: Final = Path(__file__).resolve().parent / "boards.json"

ARCHITECTURES: Final = {"turing": 6, "ampere": 7, "ada": 8, "hopper": 9, "blackwell": 10}
ADDRESSING: Final = {"none": 0, "hmm": 1, "ats": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardProfile:
    """A GPU instance profile. `index` is NVML's enum, `id` what creation takes."""

    name: str
    index: int
    id: int
    slices: int
    count: int
    sm: int
    ce: int
    dec: int
    enc: int
    jpeg: int
    ofa: int
    memory_mib: int
    size: int
    starts: tuple[int, ...]
    derived: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One model. `slots` is the length of the placement axis; 0 means that it has no MIG."""

    key: str
    product: str
    arch: str
    compute_capability: tuple[int, int]
    pci_device_id: int
    memory_mib: int
    power_limit_w: int
    bar1_mib: int
    nvlinks: int
    fabric: bool
    addressing: str
    pcie_generation: int
    slots: int
    gi_slices: int
    mig_needs_reset: bool
    profiles: tuple[BoardProfile, ...]
    derived: tuple[str, ...] = ()


@cache
def boards() -> dict[str, Board]:
    """Every board by key."""
    data: dict[str, dict[str, Any]] = json.loads(DATA.read_text())
    return {key: _board(key, fields) for key, fields in data.items()}


def board(key: str) -> Board:
    """The board of that key, or an error that lists the keys."""
    try:
        return boards()[key]
    except KeyError:
        raise ValueError(f"no board {key!r}; there are {', '.join(boards())}") from None


def _board(key: str, fields: dict[str, Any]) -> Board:
    profiles = tuple(
        BoardProfile(
            **p
            | {
                "starts": tuple(p["starts"]),
                "derived": tuple(p.get("derived", ())),
            }
        )
        for p in fields["profiles"]
    )
    major, minor = fields["compute_capability"]
    return Board(
        key=key,
        **fields
        | {
            "compute_capability": (major, minor),
            "pci_device_id": int(fields["pci_device_id"], 16),
            "profiles": profiles,
            "derived": tuple(fields.get("derived", ())),
        },
    )
