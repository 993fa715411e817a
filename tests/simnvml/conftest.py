"""pynvml on the simulated library, shut down after each test whatever the test did."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hack.simnvml.testing import make_machine, preload, shut_down

__all__ = ["make_machine"]


@pytest.fixture
def nvml(make_machine) -> Iterator[None]:
    """For tests that call nvmlInit: ends every start that is still open."""
    preload()
    yield
    shut_down()
