"""helm, where there is one: in PATH, or built by hack.kind."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hack.kind import binaries
from hack.kind.shell import Failure
from tests.chart.render import Chart


@pytest.fixture(scope="session")
def helm() -> Path:
    if found := shutil.which("helm"):
        return Path(found)
    try:
        built = binaries.planned("helm").entries[0] / "helm"
    except Failure as error:
        pytest.skip(f"no helm in PATH, and none can be looked up: {error}")
    if not built.exists():
        pytest.skip("no helm in PATH nor built; `python -m hack.kind binaries helm` builds it")
    return built


@pytest.fixture
def chart(helm, tmp_path) -> Callable[..., Chart]:
    """Renders the chart with files of values, and with a mapping of values on top."""

    def make(*files: Path, **values: object) -> Chart:
        return Chart(helm=helm, scratch=tmp_path, files=files, values=values)

    return make
