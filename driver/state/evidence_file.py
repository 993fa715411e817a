r"""The bytes of the evidence file, and the value they stand for.

Why it exists: what is held against a GPU outlives this process and this version, so its form is
written down in one place, like the ledger's:

    {"format":"tessera-evidence","node":"n1","sha256":"<hex>","version":1}\n
    {"boot_id":"...","cleared":[...],"clock":...,"items":[...],"sightings":[...]}\n

The checksum covers the exact bytes of the second line, without its end. A later version may add
fields: they are ignored here. What this version could misread gets another `version`. How often a
probe was tried is not stored: after a start it is tried anew.

Must not know files; it is told a name only for messages.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from driver.core.errors import StateDamaged, StateTooNew
from driver.core.health.items import Cleared, Evidence, Item, Kind, Sighting, Sort
from driver.core.health.signals import Acknowledged, Need, Scope, Source
from driver.core.ids import GpuUuid

FORMAT: Final = "tessera-evidence"
VERSION: Final = 1
_CONFIG: Final = ConfigDict(strict=True, extra="ignore", frozen=True, allow_inf_nan=False)
_LINES: Final = 3  # header, body, and nothing after the last end


class _Header(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    format: str
    version: int
    sha256: str
    node: str


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


class _Body(BaseModel):
    model_config = _CONFIG

    boot_id: str
    clock: float
    items: tuple[_Item, ...]
    cleared: tuple[_Cleared, ...]
    sightings: tuple[_Sighting, ...]

    def value(self) -> Evidence:
        items = [each.value() for each in self.items]
        return Evidence(
            boot_id=self.boot_id,
            clock=self.clock,
            items={item.key: item for item in items},
            cleared=dict(each.value() for each in self.cleared),
            sightings=dict(each.value() for each in self.sightings),
        )


_BODY: Final = TypeAdapter(_Body)


def encode(evidence: Evidence, *, node: str) -> bytes:
    body = _line(
        {
            "boot_id": evidence.boot_id,
            "clock": evidence.clock,
            "items": [_item(item) for item in evidence.items.values()],
            "cleared": [{**s._asdict(), **asdict(c)} for s, c in evidence.cleared.items()],
            "sightings": [{**s._asdict(), "at": at} for s, at in evidence.sightings.items()],
        }
    )
    digest = hashlib.sha256(body).hexdigest()
    header = {"format": FORMAT, "version": VERSION, "sha256": digest, "node": node}
    return b"%b\n%b\n" % (_line(header), body)


def decode(data: bytes, *, node: str, name: str) -> Evidence:
    """StateDamaged for what is not a whole file of ours, StateTooNew for a later version's."""
    lines = data.split(b"\n")
    if len(lines) != _LINES or lines[2]:
        raise StateDamaged(f"{name}: not two whole lines ({len(data)} bytes)")
    try:
        header = _Header.model_validate_json(lines[0])
    except ValidationError as error:
        raise StateDamaged(f"{name}: unreadable header: {_first(error)}") from error
    if header.format != FORMAT or header.version < 1:
        raise StateDamaged(f"{name}: not a {FORMAT} file")
    if header.version > VERSION:
        raise StateTooNew(
            f"{name} has evidence version {header.version}, this Tessera reads up to {VERSION};"
            " run the version that wrote it, or remove the file: then every GPU counts as well"
        )
    if hashlib.sha256(lines[1]).hexdigest() != header.sha256:
        raise StateDamaged(f"{name}: the checksum does not match")
    if header.node != node:
        raise StateDamaged(f"{name}: written on node {header.node!r}, this is {node!r}")
    try:
        return _BODY.validate_json(lines[1]).value()
    except ValidationError as error:
        raise StateDamaged(f"{name}: {_first(error)}") from error


def _item(item: Item) -> dict[str, object]:
    return {**asdict(item), "proved": sorted(item.proved)}


def _line(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _first(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in found["loc"])
    return f"{where}: {found['msg']}" if where else found["msg"]
