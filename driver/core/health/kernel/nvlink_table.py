"""Which row of NVIDIA's table an NVLink 5 error is, and what the row asks for.

Why it exists: the same number means different rows in different driver branches, and the key has
four parts; the table is data, the search is here. Must not know where the rows come from.

The key: code, sub-code and cause out of `intrInfo`, `errorStatus`. The sub-code is in bits 9 to 5
before R575 and in bits 6 to 0 from there; the bit above it tells the two variants of those rows
that have them. The cause is in bits 25 to 20. The unit's name must fit too, so that a line that
does not belong to the branch we think of is not taken for another row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from driver.core.health.kernel.nvlink import Nvlink5

_NEW_LAYOUT_FROM: Final = 575


class Outcome(StrEnum):
    IGNORE = "ignore"
    FOLLOW = "follow"
    """Do what an accompanying Xid 154 says; without one, the application starts again."""
    RESET = "reset"


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvlink5Row:
    """`old`, `new`: sub-code before and from R575. `statuses` empty: any. `fatal`: what the
    driver's text should say; None for rows that end a link, where it may say either. `marked`: the
    outcome where the variant bit is set, if the row has a variant.
    """

    code: int
    units: frozenset[str]
    old: int
    new: int
    cause: int
    statuses: frozenset[int]
    outcome: Outcome
    fatal: bool | None
    marked: Outcome | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    row: Nvlink5Row
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Nvlink5Table:
    rows: tuple[Nvlink5Row, ...]

    def find(self, code: int, error: Nvlink5, branch: int | None) -> Found | None:
        """None: no such row. Without a branch the new layout is tried first."""
        layouts = (True, False) if branch is None else (branch >= _NEW_LAYOUT_FROM,)
        for new in layouts:
            found = _first(self.rows, code, error, new=new)
            if found is not None:
                return found
        return None


def _first(rows: Iterable[Nvlink5Row], code: int, error: Nvlink5, *, new: bool) -> Found | None:
    subcode = error.info & 0x7F if new else error.info >> 5 & 0x1F
    marked = bool(error.info >> (7 if new else 10) & 1)
    cause = error.info >> 20 & 0x3F
    names = {error.unit, *error.unit.split("/")}
    for row in rows:
        if (
            row.code == code
            and (row.new if new else row.old) == subcode
            and row.cause == cause
            and (not row.statuses or error.status in row.statuses)
            and not names.isdisjoint(row.units)
        ):
            return Found(row=row, outcome=row.marked if marked and row.marked else row.outcome)
    return None
