"""Records gather only in a storm of harmless ones, and only for a moment."""

from __future__ import annotations

from itertools import pairwise

from driver.state.kmsg_storm import REST, Storm


def rests(*reads: tuple[float, bool]) -> list[float]:
    """`reads`: seconds since the one before, and whether something mattered."""
    storm, now, found = Storm(), 0.0, []
    for gap, mattered in reads:
        now += gap
        found.append(storm.rest(mattered=mattered, now=now))
    return found


def test_a_storm_rests_after_its_first_records_and_as_long_as_it_lasts() -> None:
    found = rests(*[(REST, False)] * 1000)
    assert set(found) == {0.0, REST}
    assert [a < b for a, b in pairwise(found)].count(True) == 1
    assert found.index(REST) < 50


def test_what_comes_now_and_then_is_read_at_once_for_ever() -> None:
    assert set(rests(*[(0.1, False)] * 1000)) == {0.0}


def test_a_record_that_matters_ends_the_resting() -> None:
    storm = [(REST, False)] * 100
    found = rests(*storm, (REST, True), *storm[:10])
    assert found[99] == REST
    assert set(found[100:]) == {0.0}


def test_a_quiet_moment_ends_the_resting() -> None:
    storm = [(REST, False)] * 100
    assert set(rests(*storm, (1.0, False), *storm[:10])[100:]) == {0.0}
