"""The plugin is killed, or let down by disk or GPU, at every step: the next one lives with it."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from hack.testbed import REPO
from tests.crash.scenes import SCENES

RUNS = {
    "whole": 440,
    "dynamic": 1000,
    "first": 300,
    "two": 750,
    "mixed": 80,
    "static": 270,
    "late": 410,
}
"""At least so many in each scene: a step that is not counted any more must show."""


@pytest.mark.timeout(400)
@pytest.mark.parametrize("scene", SCENES)
def test_whatever_step_is_the_last_one_nothing_leaks_and_nothing_is_given_twice(
    scene: str,
) -> None:
    """In a process of its own: children are made of one that has a single thread."""
    told = subprocess.run(
        [sys.executable, "-m", "tests.crash", scene],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    print(told.stdout)
    assert told.returncode == 0, told.stdout[-4000:] + told.stderr[-4000:]
    found = re.search(r"(\d+) kill points, (\d+) runs, 0 failed", told.stdout)
    assert found is not None
    assert int(found[2]) >= RUNS[scene]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", [4, 5])
def test_nothing_is_found_in_a_short_torture(seed: int) -> None:
    """With UUIDs that come again after a reset, and with those that do not."""
    told = subprocess.run(
        [sys.executable, "-m", "tests.crash.torture", f"--seed={seed}", "--rounds=20"],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout[-4000:] + told.stderr[-4000:]
    assert "20 rounds without a finding" in told.stdout


def test_all_scenes_together_have_two_thousand_runs() -> None:
    assert RUNS.keys() == SCENES.keys()
    assert sum(RUNS.values()) >= 2000
