"""A ResourceClaim as the server returns it, read once, where its bytes enter.

Why it exists: the allocation decides which hardware a container gets, so it is parsed into typed
values before any decision. The same shape is served by v1, v1beta2 and v1beta1. Fields that we do
not use are ignored: a newer server may send more.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class Metadata(_Read):
    name: str
    namespace: str
    uid: str


class Result(_Read):
    """One allocated device. `request` may be `main/sub` for a prioritised list."""

    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool = Field(default=False, alias="adminAccess")
    share_id: str | None = Field(default=None, alias="shareID")


class Opaque(_Read):
    driver: str
    parameters: Any = None


class Config(_Read):
    """Configuration that the scheduler copied at allocation: class entries first, then claim's."""

    source: Literal["FromClass", "FromClaim"]
    requests: tuple[str, ...] = ()
    opaque: Opaque | None = None


class Devices(_Read):
    results: tuple[Result, ...] = ()
    config: tuple[Config, ...] = ()


class Allocation(_Read):
    devices: Devices = Devices()


class Status(_Read):
    """`reserved_for`: who may use the claim now, pods or groups of pods; only their number counts
    here.
    """

    allocation: Allocation | None = None
    reserved_for: tuple[Any, ...] = Field(default=(), alias="reservedFor")


class ResourceClaim(_Read):
    metadata: Metadata
    status: Status = Status()
