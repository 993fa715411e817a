from collections.abc import Callable, Iterator, Sequence

import pytest

from hack.testbed import Testbed


@pytest.fixture
def make_bed() -> Iterator[Callable[..., Testbed]]:
    """Makes nodes; all are taken down at the end of the test."""
    made: list[Testbed] = []

    def make(preset: str | Sequence[str] = "h100x2") -> Testbed:
        bed = Testbed.make(preset)
        made.append(bed)
        return bed

    yield make
    for bed in made:
        bed.close()


@pytest.fixture
def bed(make_bed: Callable[..., Testbed]) -> Testbed:
    return make_bed()
