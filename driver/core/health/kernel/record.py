r"""One record of /dev/kmsg, as bytes, into a value.

Why it exists: the kernel's log is the fastest witness of a sick GPU, and anybody who may write to
it can put anything in it. So reading a record never fails: what is not a record is a value too,
which the caller counts. Must not know what a message means, nor how records are read.

Form: `priority,sequence,microseconds,flags[,...];text`, then lines with a leading space that hold
a dictionary, which is left out. The kernel writes bytes that are not printable ASCII as `\xNN`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

KERNEL: Final = 0
"""The facility of the kernel itself. Records written from user space never have it."""

TEXT_LIMIT: Final = 4096
"""Characters of a text that are kept; the kernel's own limit is below."""

_RECORD_LIMIT: Final = 4 * TEXT_LIMIT
_SHOWN: Final = 120
_PREFIX: Final = re.compile(rb"(\d{1,10}),(\d{1,20}),(\d{1,20}),([^;\n]{0,256});([^\n]*)")
_ESCAPED: Final = re.compile(rb"\\x([0-9a-fA-F]{2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRecord:
    """`microseconds`: since boot. `cut`: the text was longer than we keep."""

    sequence: int
    microseconds: int
    facility: int
    level: int
    text: str
    cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableRecord:
    """Not a record. `shown`: its beginning, safe to log."""

    shown: str


def parse_record(raw: bytes) -> KernelRecord | UnreadableRecord:
    """Never raises."""
    match = _PREFIX.match(raw[:_RECORD_LIMIT])
    if match is None:
        return UnreadableRecord(shown=ascii(raw[:_SHOWN]))
    priority, sequence, microseconds, _, body = match.groups()
    if b"\\" in body:
        body = _ESCAPED.sub(_unescape, body)
    text = body.decode("utf-8", "replace")
    return KernelRecord(
        sequence=int(sequence),
        microseconds=int(microseconds),
        facility=int(priority) >> 3,
        level=int(priority) & 7,
        text=text[:TEXT_LIMIT],
        cut=len(text) > TEXT_LIMIT or len(raw) > _RECORD_LIMIT,
    )


def _unescape(match: re.Match[bytes]) -> bytes:
    return bytes((int(match[1], 16),))
