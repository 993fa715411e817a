"""Whole machines: boards, how many, and where they sit.

Why it exists: PCI addresses, NUMA nodes and PCIe roots decide what a driver publishes about
topology, so a machine needs a believable floor plan. GPU identities are a function of (seed,
index): one seed per node of a cluster gives every GPU its own UUID, and the same ones each time.

Must not know: the library, files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Where a GPU sits. `switch` 0: directly below the root; equal numbers: one PCIe switch."""

    bus: int
    root: int
    switch: int
    numa: int


def _seats(buses: str, roots: str, numa: str, *, switched: bool = False) -> tuple[Seat, ...]:
    return tuple(
        Seat(
            bus=int(bus, 16),
            root=int(root, 16),
            switch=int(root, 16) + 1 if switched else 0,
            numa=int(node),
        )
        for bus, root, node in zip(buses.split(), roots.split(), numa.split(), strict=True)
    )


# Eight roots of their own, four to a socket, as on the eight-way Hopper and Blackwell machines.
EIGHT_ROOTS: Final = _seats("1b 43 52 61 9d c3 d1 df", "15 3d 4c 5b 97 bd cb d9", "0 0 0 0 1 1 1 1")
# Four PCIe switches with a pair each, four NUMA nodes, as on the eight-way Ampere machines.
FOUR_SWITCHES: Final = _seats(
    "07 0f 47 4e 87 90 b7 bd", "00 00 40 40 80 80 b0 b0", "3 3 1 1 7 7 5 5", switched=True
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A machine to build: one board key per seat."""

    boards: tuple[str, ...]
    seats: tuple[Seat, ...]
    driver: str = "580.95.05"

    def __post_init__(self) -> None:
        if not 0 < len(self.boards) <= len(self.seats):
            raise ValueError(f"{len(self.boards)} boards do not fit {len(self.seats)} seats")


def _uniform(board: str, count: int, seats: tuple[Seat, ...] = EIGHT_ROOTS) -> Preset:
    # Few GPUs are spread over the sockets: two land on one NUMA node each.
    step = max(1, len(seats) // count)
    return Preset(boards=(board,) * count, seats=seats[::step][:count])


PRESETS: Final = {
    "dgx-h100": _uniform("h100-80", 8),
    "h100x1": _uniform("h100-80", 1),
    "h100x2": _uniform("h100-80", 2),
    "h100x4": _uniform("h100-80", 4),
    "h200x8": _uniform("h200", 8),
    "dgx-a100": _uniform("a100-80", 8, FOUR_SWITCHES),
    "a100-40x8": _uniform("a100-40", 8, FOUR_SWITCHES),
    "hgx-b200": _uniform("b200", 8),
    "gb200-tray": _uniform("gb200", 4),
    "a30x4": _uniform("a30", 4),
    "l40sx8": _uniform("l40s", 8),
    "rtx-pro-6000x4": _uniform("rtx-pro-6000", 4),
    "mixed": Preset(
        boards=("h100-80", "a100-40", "a30", "l40s", "b200", "rtx-pro-6000"), seats=EIGHT_ROOTS
    ),
}


def preset(what: str | Sequence[str]) -> Preset:
    """A named preset, or a list of board keys seated in order."""
    if not isinstance(what, str):
        return Preset(boards=tuple(what), seats=EIGHT_ROOTS)
    try:
        return PRESETS[what]
    except KeyError:
        raise ValueError(f"no preset {what!r}; there are {', '.join(PRESETS)}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What names one GPU for ever."""

    uuid: str
    serial: str


def identities(seed: str, count: int) -> tuple[Identity, ...]:
    """One per index; the first eight hex digits differ, because device names are made of them."""
    found: dict[str, Identity] = {}
    for index in range(count):
        salt = 0
        while True:
            digest = hashlib.sha256(f"gpu/{seed}/{index}/{salt}".encode()).hexdigest()
            if digest[:8] not in found:
                break
            salt += 1
        found[digest[:8]] = Identity(
            uuid=f"GPU-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}",
            serial=f"165{int(digest[32:44], 16) % 10**10:010d}",
        )
    return tuple(found.values())


def boot_id(seed: str, boot: int) -> str:
    """The id of the n-th boot of a machine."""
    digest = hashlib.sha256(f"boot/{seed}/{boot}".encode()).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-a{digest[17:20]}-{digest[20:32]}"
