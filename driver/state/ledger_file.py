r"""The bytes of one ledger file, and the entry they stand for.

Why it exists: what is on disk outlives this version, so its form is written down in one place:

    {"format":"tessera-ledger","node":"n1","sha256":"<hex>","version":1}\n
    {"boot_id":"...","holdings":[...],"name":"...","namespace":"...","uid":"..."}\n

The checksum covers the exact bytes of the second line, without its end. A later version may add
fields to the body: they are ignored here. What this version could misread gets another `version`,
and then the file is neither read nor overwritten.

Must not know files; it is told a name only for messages.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from driver.core.errors import StateDamaged, StateTooNew
from driver.core.ids import CdiId, ClaimUID, DeviceName, GpuUuid, PoolName
from driver.core.ledger import Entry, Holding, Made, Phase, Slot

FORMAT: Final = "tessera-ledger"
VERSION: Final = 1


class _Header(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    format: str
    version: int
    sha256: str
    node: str


class _Made(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    instance: int
    compute: int
    uuid: str


class _Slot(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    profile: str
    start: int
    size: int
    ours: bool
    made: _Made | None = None

    def value(self) -> Slot:
        return Slot(
            profile=self.profile,
            start=self.start,
            size=self.size,
            ours=self.ours,
            made=Made(**self.made.model_dump()) if self.made else None,
        )


class _Holding(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    request: str
    pool: str
    device: str
    gpu: str
    cdi_id: str
    admin_access: bool = False
    share_id: str | None = None
    slot: _Slot | None = None

    def value(self) -> Holding:
        return Holding(
            request=self.request,
            pool=PoolName(self.pool),
            device=DeviceName(self.device),
            gpu=GpuUuid(self.gpu),
            cdi_id=CdiId(self.cdi_id),
            admin_access=self.admin_access,
            share_id=self.share_id,
            slot=self.slot.value() if self.slot else None,
        )


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    uid: str
    namespace: str
    name: str
    boot_id: str
    holdings: tuple[_Holding, ...]
    phase: Literal["started", "completed"] = "completed"

    def value(self) -> Entry:
        return Entry(
            uid=ClaimUID(self.uid),
            namespace=self.namespace,
            name=self.name,
            boot_id=self.boot_id,
            holdings=tuple(h.value() for h in self.holdings),
            phase=Phase(self.phase),
        )


def encode(entry: Entry, *, node: str) -> bytes:
    body = _line(asdict(entry))
    digest = hashlib.sha256(body).hexdigest()
    header = {"format": FORMAT, "version": VERSION, "sha256": digest, "node": node}
    return b"%b\n%b\n" % (_line(header), body)


def decode(data: bytes, *, node: str, name: str) -> Entry:
    """StateDamaged for what is not a whole file of ours, StateTooNew for a later version's."""
    lines = data.split(b"\n")
    if len(lines) != 3 or lines[2]:  # noqa: PLR2004 - header, body, and nothing after the last end
        raise StateDamaged(f"{name}: not two whole lines ({len(data)} bytes)")
    header = _header(lines[0], name)
    if header.version > VERSION:
        raise StateTooNew(
            f"{name} has ledger version {header.version}, this Tessera reads up to {VERSION};"
            " run the version that wrote it, or drain the node and remove the file"
        )
    if hashlib.sha256(lines[1]).hexdigest() != header.sha256:
        raise StateDamaged(f"{name}: the checksum does not match")
    if header.node != node:
        raise StateDamaged(f"{name}: written on node {header.node!r}, this is {node!r}")
    try:
        return _Body.model_validate_json(lines[1]).value()
    except ValidationError as error:
        raise StateDamaged(f"{name}: {_first(error)}") from error


def _header(line: bytes, name: str) -> _Header:
    try:
        header = _Header.model_validate_json(line)
    except ValidationError as error:
        raise StateDamaged(f"{name}: unreadable header: {_first(error)}") from error
    if header.format != FORMAT or header.version < 1:
        raise StateDamaged(f"{name}: not a {FORMAT} file")
    return header


def _line(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _first(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in found["loc"])
    return f"{where}: {found['msg']}" if where else found["msg"]
