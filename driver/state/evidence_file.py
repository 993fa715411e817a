r"""The bytes of the evidence file, and the value they stand for.

Why it exists: what is held against a GPU outlives this process and this version, so its form is
written down in one place, like the ledger's:

    {"format":"tessera-evidence","node":"n1","sha256":"<hex>","version":1}\n
    {"boot_id":"...","cleared":[...],"clock":...,"gpus":[...],"items":[...],"sightings":[...]}\n

The checksum covers the exact bytes of the second line, without its end. A later version may add
fields: they are ignored here. What this version could misread gets another `version`.

How often a probe was tried is not stored: after a start it is tried anew. Nor is that a source is
switched off: the settings of the next start say it.

Must not know files; it is told a name only for messages.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from driver.core.errors import StateDamaged
from driver.core.health.items import Cleared, Evidence, Item, Kind, KnownGpu, Sighting, Sort
from driver.core.health.signals import Acknowledged, Need, Scope, Source
from driver.core.ids import GpuUuid
from driver.core.snapshot import PciAddress
from driver.state.sealed import Seal, first_of

FORMAT: Final = "tessera-evidence"
VERSION: Final = 1
_SEAL: Final = Seal(
    format=FORMAT,
    version=VERSION,
    what="evidence",
    way_out="run the version that wrote it, or remove the file: then every GPU counts as well",
)
_CONFIG: Final = ConfigDict(strict=True, extra="ignore", frozen=True, allow_inf_nan=False)


class _Scope(BaseModel):
    model_config = _CONFIG

    gpu: str | None
    gi: int | None
    ci: int | None

    def value(self) -> Scope:
        return Scope(gpu=None if self.gpu is None else GpuUuid(self.gpu), gi=self.gi, ci=self.ci)


class _Acknowledged(BaseModel):
    model_config = _CONFIG

    gpu: str
    name: str
    serial: str
    by: str
    at: float

    def value(self) -> Acknowledged:
        return Acknowledged(
            gpu=GpuUuid(self.gpu), name=self.name, serial=self.serial, by=self.by, at=self.at
        )


class _Item(BaseModel):
    model_config = _CONFIG

    kind: Kind
    source: Source
    scope: _Scope
    name: str
    need: Need
    first: float
    last: float
    boot_id: str
    count: int = Field(ge=1)
    detail: str
    place: str
    injected: bool
    slots: int
    serial: str
    returns: int
    wish: bool
    suspect: bool
    well: float | None
    reset: float | None
    acknowledged: _Acknowledged | None
    overruled: float | None
    proved: tuple[str, ...]

    def value(self) -> Item:
        plain = self.model_dump(exclude={"scope", "acknowledged", "proved"})
        return Item(
            **plain,
            scope=self.scope.value(),
            acknowledged=self.acknowledged.value() if self.acknowledged else None,
            proved=frozenset(GpuUuid(gpu) for gpu in self.proved),
        )


class _Cleared(BaseModel):
    model_config = _CONFIG

    gpu: str | None
    name: str
    at: float
    returns: int

    def value(self) -> tuple[Sort, Cleared]:
        gpu = None if self.gpu is None else GpuUuid(self.gpu)
        return Sort(gpu, self.name), Cleared(at=self.at, returns=self.returns)


class _Sighting(BaseModel):
    model_config = _CONFIG

    gpu: str
    name: str
    place: str
    at: float

    def value(self) -> tuple[Sighting, float]:
        return Sighting(GpuUuid(self.gpu), self.name, self.place), self.at


class _Pci(BaseModel):
    model_config = _CONFIG

    domain: int
    bus: int
    device: int
    function: int


class _Gpu(BaseModel):
    model_config = _CONFIG

    uuid: str
    pci: _Pci
    minor: int | None
    serial: str

    def value(self) -> tuple[GpuUuid, KnownGpu]:
        where = PciAddress(**self.pci.model_dump())
        return GpuUuid(self.uuid), KnownGpu(pci=where, minor=self.minor, serial=self.serial)


class _Body(BaseModel):
    model_config = _CONFIG

    boot_id: str
    clock: float
    items: tuple[_Item, ...]
    cleared: tuple[_Cleared, ...]
    sightings: tuple[_Sighting, ...]
    gpus: tuple[_Gpu, ...] = ()
    """Not in files of the first versions."""

    def value(self) -> Evidence:
        items = [each.value() for each in self.items]
        return Evidence(
            boot_id=self.boot_id,
            clock=self.clock,
            items={item.key: item for item in items},
            cleared=dict(each.value() for each in self.cleared),
            sightings=dict(each.value() for each in self.sightings),
            gpus=dict(each.value() for each in self.gpus),
        )


_BODY: Final = TypeAdapter(_Body)


def encode(evidence: Evidence, *, node: str) -> bytes:
    return _SEAL.close(
        {
            "boot_id": evidence.boot_id,
            "clock": evidence.clock,
            "items": [_item(item) for item in evidence.items.values()],
            "cleared": [{**s._asdict(), **asdict(c)} for s, c in evidence.cleared.items()],
            "gpus": [{"uuid": uuid, **asdict(gpu)} for uuid, gpu in evidence.gpus.items()],
            "sightings": [{**s._asdict(), "at": at} for s, at in evidence.sightings.items()],
        },
        node=node,
    )


def decode(data: bytes, *, node: str, name: str) -> Evidence:
    """StateDamaged for what is not a whole file of ours, StateTooNew for a later version's."""
    body = _SEAL.open(data, node=node, name=name)
    try:
        return _BODY.validate_json(body).value()
    except ValidationError as error:
        raise StateDamaged(f"{name}: {first_of(error)}") from error


def _item(item: Item) -> dict[str, object]:
    stored = {**asdict(item), "proved": sorted(item.proved)}
    del stored["unasked"]
    return stored
