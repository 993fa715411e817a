"""What the plugin keeps on disk, and what it reads there at each preparation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from driver.core.cdi import DriverFiles, JsonValue
from driver.core.ids import ClaimUID, GpuUuid
from driver.core.ledger import Entry, Made
from driver.core.snapshot import GpuFacts


class Locks(Protocol):
    """Locks by name, for one holder at a time among all who share them."""

    def take(self, name: str, *, by: str, patience: float) -> str:
        """Empty once it is ours; else, after `patience` seconds, who holds it."""
        ...

    def give(self, name: str) -> None:
        """By who took it."""
        ...


class Ledger(Protocol):
    """One entry a claim; durable when a method returns. StateError names path and next step."""

    def entries(self) -> Mapping[ClaimUID, Entry]:
        """As of now, with what other plugin processes of this node wrote."""
        ...

    def unread(self) -> Mapping[ClaimUID, str]:
        """Claims in use of which `entries` does not say all, and why. Nothing may be handed out
        while there are any: it could be theirs.
        """
        ...

    def put(self, entry: Entry) -> None: ...

    def remove(self, uid: ClaimUID) -> None:
        """Nothing happens where there is no entry."""
        ...


class CdiStore(Protocol):
    """Our files in the CDI folder; none of them is ever there half written."""

    def ensure(self, uid: ClaimUID, spec: Mapping[str, JsonValue]) -> bool:
        """Make the file equal to `spec`; whether it had to be written."""
        ...

    def remove(self, uid: ClaimUID) -> None: ...

    def claims(self) -> frozenset[ClaimUID]:
        """The claims that have a file of ours."""
        ...

    def read(self, uid: ClaimUID) -> JsonValue | None:
        """The claim's file, parsed; None where there is none, or nothing that can be parsed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAt:
    """Where the capability files of a partition are: `minor` is its GPU's."""

    minor: int
    made: Made


def partitions_of(entry: Entry, gpus: Mapping[GpuUuid, GpuFacts]) -> tuple[PartitionAt, ...]:
    """Of a claim all whose GPUs are in `gpus`."""
    return tuple(
        PartitionAt(minor=gpus[h.gpu].minor, made=h.slot.made)
        for h in entry.holdings
        if h.slot is not None and h.slot.made is not None
    )


class DriverRoot(Protocol):
    """The NVIDIA driver's files as they are now."""

    def files(
        self, gpus: tuple[GpuFacts, ...], partitions: tuple[PartitionAt, ...] = ()
    ) -> DriverFiles:
        """StateError names what is missing: an incomplete CDI spec is an error, never a file."""
        ...
