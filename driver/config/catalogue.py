"""The catalogue of Xids and SXids from its file: the one that comes with us, or the user's own.

Why it exists: a wrong row withholds healthy GPUs or trusts sick ones, so a file is taken whole or
not at all, and the error names the row. Must not know what is done with a class.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from driver.core.errors import ConfigError
from driver.core.health.kernel.catalogue import Catalogue, SxidClass, XidClass, XidRow
from driver.core.health.kernel.nvlink_table import Nvlink5Row, Nvlink5Table, Outcome

BUILT_IN: Final = "xid_catalogue.json"

_Code = Annotated[int, Field(ge=1, le=99_999, strict=True)]


def _hex(value: object) -> object:
    if isinstance(value, str) and value.startswith("0x"):
        try:
            return int(value, 16)
        except ValueError:
            return value
    return value


_Word = Annotated[int, BeforeValidator(_hex), Field(ge=0, le=0xFFFF_FFFF, strict=True)]


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Xid(_Read):
    code: _Code
    mnemonic: str = Field(min_length=1)
    meaning: str = Field(min_length=1)
    cls: XidClass = Field(alias="class")
    arch: str = Field(default="", pattern="^A?H?B?G?$")
    since: int | None = Field(default=None, ge=515, le=9999, strict=True)
    whole: bool = Field(default=False, strict=True)
    joins: _Code | None = None
    ends: _Code | None = None
    note: str = ""


class _Nvlink5(_Read):
    code: Annotated[int, Field(ge=144, le=150, strict=True)]
    units: tuple[str, ...] = Field(min_length=1)
    old: Annotated[int, Field(ge=0, le=0x1F, strict=True)]
    new: Annotated[int, Field(ge=0, le=0x7F, strict=True)]
    cause: Annotated[int, Field(ge=0, le=0x3F, strict=True)] = 0
    statuses: tuple[_Word, ...] = ()
    outcome: Outcome
    fatal: bool | None = Field(default=None, strict=True)
    marked: Outcome | None = None


class _File(_Read):
    source: str = Field(min_length=1)
    date: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")
    xids: list[dict[str, object]] = Field(min_length=1)
    nvlink5: list[dict[str, object]]
    sxids: dict[SxidClass, tuple[_Code, ...]]


def load_catalogue(path: Path | None = None) -> Catalogue:
    """Without a path: ours. ConfigError names the file, the row and what is wrong in it."""
    where = BUILT_IN if path is None else str(path)
    source = files("driver.config").joinpath(BUILT_IN) if path is None else path
    try:
        document = json.loads(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{where}: cannot read the Xid catalogue: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not JSON in UTF-8: {error}") from error
    file = _read(_File, document, where)
    return Catalogue(
        source=file.source,
        date=file.date,
        xids=_xids(file.xids, where),
        nvlink5=Nvlink5Table(tuple(_rows(_Nvlink5, file.nvlink5, f"{where}: nvlink5", _nvlink5))),
        sxids=_sxids(file.sxids, where),
    )


def _xids(rows: Sequence[dict[str, object]], where: str) -> Mapping[int, XidRow]:
    found: dict[int, XidRow] = {}
    for row in _rows(_Xid, rows, f"{where}: xids", _xid):
        if row.code in found:
            raise ConfigError(f"{where}: xids: code {row.code} is there twice; keep one row")
        found[row.code] = row
    for row in found.values():
        for other in (row.joins, row.ends):
            if other is not None and other not in found:
                raise ConfigError(f"{where}: xids: code {row.code} refers to {other}: no such row")
    return found


def _sxids(classes: Mapping[SxidClass, Iterable[int]], where: str) -> Mapping[int, SxidClass]:
    found: dict[int, SxidClass] = {}
    for cls, codes in classes.items():
        for code in codes:
            if code in found:
                raise ConfigError(f"{where}: sxids: code {code} is there twice; keep one")
            found[code] = cls
    return found


_Model = TypeVar("_Model", bound=BaseModel)
_Row = TypeVar("_Row")


def _rows(
    model: type[_Model],
    rows: Sequence[dict[str, object]],
    where: str,
    build: Callable[[_Model], _Row],
) -> Iterable[_Row]:
    for index, row in enumerate(rows, start=1):
        yield build(_read(model, row, f"{where}: row {index} (code {row.get('code', 'missing')})"))


def _read(model: type[_Model], document: object, where: str) -> _Model:
    try:
        return model.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        given = "" if first["type"] == "missing" else f" (got {str(first['input'])[:60]!r})"
        raise ConfigError(f"{where}: {place}: {first['msg']}{given}") from error


def _xid(row: _Xid) -> XidRow:
    return XidRow(
        code=row.code,
        mnemonic=row.mnemonic,
        meaning=row.meaning,
        cls=row.cls,
        arch=row.arch,
        since=row.since,
        whole=row.whole,
        joins=row.joins,
        ends=row.ends,
        note=row.note,
    )


def _nvlink5(row: _Nvlink5) -> Nvlink5Row:
    return Nvlink5Row(
        code=row.code,
        units=frozenset(row.units),
        old=row.old,
        new=row.new,
        cause=row.cause,
        statuses=frozenset(row.statuses),
        outcome=row.outcome,
        fatal=row.fatal,
        marked=row.marked,
    )
