r"""Two lines that prove themselves: a header with a checksum, and a body.

Why it exists: what is on disk outlives this version and may be cut off, altered or another node's;
each kind of file is sealed in the same way, so that each is trusted for the same reasons:

    {"format":"<what>","node":"n1","sha256":"<hex>","version":1}\n
    {...}\n

The checksum covers the exact bytes of the second line, without its end: a later version may add
fields to the body. What an older version could misread gets another `version`.

Must not know files, or what a body says; it is told a name only for messages.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from driver.core.errors import StateDamaged, StateTooNew

_LINES: Final = 3  # header, body, and nothing after the last end


class _Header(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    format: str
    version: int
    sha256: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """`what`: in messages; `way_out`: what to do with a file of a later version."""

    format: str
    version: int
    what: str
    way_out: str

    def close(self, body: object, *, node: str) -> bytes:
        line = _line(body)
        header = {
            "format": self.format,
            "version": self.version,
            "sha256": hashlib.sha256(line).hexdigest(),
            "node": node,
        }
        return b"%b\n%b\n" % (_line(header), line)

    def open(self, data: bytes, *, node: str, name: str) -> bytes:
        """The body. StateDamaged for what is not a whole file of ours, StateTooNew for a later
        version's.
        """
        lines = data.split(b"\n")
        if len(lines) != _LINES or lines[2]:
            raise StateDamaged(f"{name}: not two whole lines ({len(data)} bytes)")
        try:
            header = _Header.model_validate_json(lines[0])
        except ValidationError as error:
            raise StateDamaged(f"{name}: unreadable header: {first_of(error)}") from error
        if header.format != self.format or header.version < 1:
            raise StateDamaged(f"{name}: not a {self.format} file")
        if header.version > self.version:
            raise StateTooNew(
                f"{name} has {self.what} version {header.version}, this Tessera reads up to"
                f" {self.version}; {self.way_out}"
            )
        if hashlib.sha256(lines[1]).hexdigest() != header.sha256:
            raise StateDamaged(f"{name}: the checksum does not match")
        if header.node != node:
            raise StateDamaged(f"{name}: written on node {header.node!r}, this is {node!r}")
        return lines[1]


def first_of(error: ValidationError) -> str:
    """The first of what is wrong, and where."""
    found = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in found["loc"])
    return f"{where}: {found['msg']}" if where else found["msg"]


def _line(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
