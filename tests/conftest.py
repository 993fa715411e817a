"""Where tests are shared among workers, what may take longest begins first: else one worker would
wait for another at the end.
"""

from __future__ import annotations

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """How long a test may take is in its mark `timeout`; those without one keep their order."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: -_patience(item))


def _patience(item: pytest.Item) -> float:
    found = item.get_closest_marker("timeout")
    return float(found.args[0]) if found is not None else 0.0
