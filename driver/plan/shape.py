"""The least that a ResourceSlice must be for its content to be looked at.

Why it exists: the codec reads what an API server has checked. A file may have been written, or cut
short, by anyone, and must not end in a traceback.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class _Metadata(_Strict):
    name: str
    uid: str
    resource_version: str = Field(alias="resourceVersion")


class _Pool(_Strict):
    name: str
    generation: int
    count: int = Field(alias="resourceSliceCount")


class _Named(_Strict):
    name: str


class _Consumption(_Strict):
    counter_set: str = Field(alias="counterSet")


class _Body(_Strict):
    consumes: list[_Consumption] | None = Field(alias="consumesCounters", default=None)


class _Device(_Body):
    name: str = Field(max_length=63)
    basic: _Body | None = None


class _Spec(_Strict):
    driver: str
    pool: _Pool
    node: str = Field(alias="nodeName", default="")
    devices: list[_Device] | None = None
    counters: list[_Named] | None = Field(alias="sharedCounters", default=None)


class _Slice(_Strict):
    metadata: _Metadata
    spec: _Spec


def check_slice(obj: Mapping[str, Any]) -> None:
    """ValidationError names what is missing or of another kind."""
    _Slice.model_validate(dict(obj))
