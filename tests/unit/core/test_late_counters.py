"""What sums admit, in the cases that show why they are as they are; all others are properties."""

from dataclasses import replace

import pytest

from driver.core.counters import Inexpressible
from driver.core.geometry import Geometry, Placement, bound, offers
from driver.core.late_counters import LateCounters, find_late_counters
from tests.data.mig_boards import A30, A100_80, H100, RTX_PRO_6000


def found(board, listed):
    return find_late_counters(bound(offers([board], listed)[0], late=True))


def late_counters(board, listed):
    counters = found(board, listed)
    assert isinstance(counters, LateCounters), counters
    return counters


@pytest.mark.parametrize(
    ("board", "listed", "sums", "most"),
    [
        (H100, ["1g.10gb"], {"memory-slices": 8}, {"1g.10gb": 7}),
        (
            H100,
            ["1g.10gb", "1g.10gb+me", "7g.80gb"],
            {"memory-slices": 8, "compute-slices": 7},
            {"1g.10gb": 7, "1g.10gb+me": 1, "7g.80gb": 1},
        ),
        (A100_80, ["2g.20gb"], {"memory-slices": 8}, {"2g.20gb": 3}),
        (
            A30,
            ["1g.6gb+me", "2g.12gb+me"],
            {"memory-slices": 4, "jpeg-engines": 1},
            {"1g.6gb+me": 1, "2g.12gb+me": 1},
        ),
        (RTX_PRO_6000, ["1g.24gb"], {"memory-slices": 12}, {"1g.24gb": 4}),
    ],
    ids=["1g", "1g, +me and 7g", "2g", "media", "thirds"],
)
def test_a_sum_beside_the_slots_is_there_only_where_they_admit_too_much(board, listed, sums, most):
    counters = late_counters(board, listed)
    assert dict(counters.counter_set("gpu").counters) == sums
    assert dict(counters.most) == most


def test_the_full_gpu_takes_every_slot():
    counters = late_counters(H100, ["1g.10gb"])
    assert counters.whole("gpu").counters == (("memory-slices", 8),)


def test_starts_that_waste_slots_cannot_be_told_by_sums():
    """Two of a pair that could only lie on the same middle slots; the sum has room for both."""
    one = replace(H100.profile("3g.40gb"), placements=(Placement(start=2, size=4),))
    other = replace(H100.profile("2g.20gb"), placements=(Placement(start=4, size=2),))
    verdict = found(Geometry(slots=8, profiles=(one, other)), ["3g.40gb", "2g.20gb"])
    assert isinstance(verdict, Inexpressible)
    assert "1 x 2g.20gb, 1 x 3g.40gb together do not fit" in verdict.reason
    assert "set binding to scheduler" in verdict.reason
