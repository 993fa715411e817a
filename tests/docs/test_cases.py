"""What the pages say of tests and of messages: both exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from driver.cli import FAILED, OK, WRONG
from driver.plugin import wiring
from tests.docs.tables import OPERATIONS, REPO

CASES = REPO / "docs" / "cases.md"
HOLE = "…"


def defined_tests() -> set[str]:
    found: set[str] = set()
    for path in (REPO / "tests").rglob("test_*.py"):
        found |= set(re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE))
    return found


def messages() -> list[str]:
    """Every text in the driver's code; what is filled in later reads as `…`."""
    found: list[str] = []
    for path in (REPO / "driver").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.JoinedStr(values=parts):
                    found.append("".join(map(_part, parts)))
                case ast.Constant(value=str(text)):
                    found.append(text)
    return found


def _part(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else HOLE


def section(page: Path, title: str) -> str:
    """The text below a heading, up to the next one of any level."""
    (found,) = re.findall(
        rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", page.read_text(), re.MULTILINE | re.DOTALL
    )
    return str(found)


def first_cells(text: str) -> list[str]:
    return re.findall(r"^\| `([^`]+)`", text, re.MULTILINE)


@pytest.mark.parametrize("page", [CASES, OPERATIONS], ids=lambda page: page.name)
def test_every_test_that_a_page_names_exists(page) -> None:
    named = set(re.findall(r"`(test_\w+)`", page.read_text()))
    assert named <= defined_tests()


def test_every_case_is_shown_by_a_test_or_says_why_not() -> None:
    rows = re.findall(r"^\| (?!case |---)(.*) \|$", CASES.read_text(), re.MULTILINE)
    assert len(rows) > 30
    for row in rows:
        cells = row.split(" | ")
        assert len(cells) == 3, row
        assert "`test_" in cells[2] or cells[2].startswith(("later: ", "no test: ")), row


@pytest.mark.parametrize("title", ["The event says", "Not ready"])
def test_every_message_in_a_runbook_is_one_that_the_driver_can_give(title) -> None:
    known = messages()
    quoted = first_cells(section(OPERATIONS, title))
    assert len(quoted) >= 5
    missing = [each for each in quoted if not any(each in text for text in known)]
    assert missing == []


def test_every_readiness_condition_is_explained() -> None:
    conditions = {wiring.GPUS, wiring.SLICES, wiring.KUBELET}
    assert set(first_cells(section(OPERATIONS, "Readiness"))) == conditions


def test_every_exit_code_is_explained() -> None:
    codes = {int(code) for code in first_cells(section(OPERATIONS, "Exit codes"))}
    assert codes == {OK, FAILED, WRONG}
