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

from dataclasses import asdict
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from driver.core.errors import StateDamaged
from driver.core.ids import CdiId, ClaimUID, DeviceName, GpuUuid, PoolName
from driver.core.ledger import Entry, Holding, Made, Phase, Slot
from driver.state.sealed import Seal, first_of

FORMAT: Final = "tessera-ledger"
VERSION: Final = 1
_SEAL: Final = Seal(
    format=FORMAT,
    version=VERSION,
    what="ledger",
    way_out="run the version that wrote it, or drain the node and remove the file",
)


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
    given: bool = False

    def value(self) -> Entry:
        return Entry(
            uid=ClaimUID(self.uid),
            namespace=self.namespace,
            name=self.name,
            boot_id=self.boot_id,
            holdings=tuple(h.value() for h in self.holdings),
            phase=Phase(self.phase),
            given=self.given,
        )


def encode(entry: Entry, *, node: str) -> bytes:
    return _SEAL.close(asdict(entry), node=node)


def decode(data: bytes, *, node: str, name: str) -> Entry:
    """StateDamaged for what is not a whole file of ours, StateTooNew for a later version's."""
    body = _SEAL.open(data, node=node, name=name)
    try:
        return _Body.model_validate_json(body).value()
    except ValidationError as error:
        raise StateDamaged(f"{name}: {first_of(error)}") from error
