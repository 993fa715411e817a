"""What a command prints, where nobody takes it any more."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PRINTS = (
    [sys.executable, "-m", "driver", "plugin", "--node-name", "n1", "--print-config"],
    [sys.executable, "-m", "driver", "plugin", "--help"],
)


@pytest.fixture
def unread() -> Iterator[int]:
    """A pipe that whoever read it has closed, as `| head` does."""
    read, write = os.pipe()
    os.close(read)
    yield write
    os.close(write)


@pytest.mark.parametrize("command", PRINTS)
def test_a_reader_that_has_seen_enough_is_no_failure(command: list[str], unread: int) -> None:
    done = subprocess.run(command, stdout=unread, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", PRINTS)
def test_a_full_disk_is_told_in_one_line(command: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    told = "tessera: the output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, told)
