"""Tables in docs/ that are made from the code: between two marks, compared in tests.

A wanted change is taken over with REFRESH_GOLDEN=1, as for the chart's renderings.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

REPO: Final = Path(__file__).resolve().parents[2]
OPERATIONS: Final = REPO / "docs" / "operations.md"
REFRESH: Final = "REFRESH_GOLDEN"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    titles = tuple(head)
    lines = [titles, ("---",) * len(titles), *rows]
    return "".join("| " + " | ".join(map(_cell, line)) + " |\n" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def check(name: str, wanted: str, *, page: Path = OPERATIONS) -> None:
    """Asserts that the page has exactly `wanted` between the marks called `name`."""
    begin, end = f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->\n"
    head, rest = page.read_text().split(begin)
    found, tail = rest.split(end)
    if os.environ.get(REFRESH) == "1":
        page.write_text(head + begin + wanted + end + tail)
        found = wanted
    assert found == wanted, f"{page.name}: {name}; run again with {REFRESH}=1 if this is wanted"
