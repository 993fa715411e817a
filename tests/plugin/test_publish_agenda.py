"""When the publisher looks: causes, bursts, pauses, and the echo of its own writes."""

from __future__ import annotations

import threading

import pytest

from driver.plugin.publishing.agenda import BURST, Agenda
from driver.plugin.supervise import Wakeup


class Clock(Wakeup):
    """Waiting moves the time; without a time to wait for, nothing will ever happen."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0

    def wait(self, timeout: float | None) -> bool:
        if timeout is None:
            raise TimeoutError("waits for a cause")
        self.now += timeout
        return False


class Rounds:
    def __init__(self) -> None:
        self.clock = Clock()
        self.agenda = Agenda(self.clock, lambda: self.clock.now)

    def next(self) -> float:
        """Seconds until the next look begins."""
        before = self.clock.now
        assert self.agenda.wait(threading.Event())
        return round(self.clock.now - before, 6)

    def nothing_comes(self) -> bool:
        with pytest.raises(TimeoutError):
            self.agenda.wait(threading.Event())
        return True


@pytest.fixture
def rounds() -> Rounds:
    """After the look that comes with the start."""
    made = Rounds()
    assert made.next() == 0
    made.agenda.looked(None)
    return made


def test_without_a_cause_it_looks_when_its_pause_is_over(rounds: Rounds) -> None:
    assert rounds.nothing_comes()
    rounds.agenda.looked(600.0)
    assert rounds.next() == 600.0
    rounds.agenda.looked(None)
    assert rounds.nothing_comes()


def test_a_change_is_looked_at_at_once_and_the_pause_is_then_a_new_one(rounds: Rounds) -> None:
    rounds.agenda.looked(600.0)
    rounds.agenda.changed()
    assert rounds.next() == 0
    rounds.agenda.looked(30.0)
    assert rounds.next() == 30.0


def test_what_changes_during_a_look_is_looked_at_after_it(rounds: Rounds) -> None:
    rounds.agenda.changed()
    assert rounds.next() == 0
    rounds.agenda.changed()
    rounds.agenda.stored("7")
    rounds.agenda.looked(600.0)
    assert rounds.next() == 0
    rounds.agenda.looked(600.0)
    assert rounds.next() == 600.0


@pytest.mark.parametrize("watch_is_first", [True, False])
def test_our_own_write_is_no_cause_however_early_the_watch_tells_of_it(
    rounds: Rounds, watch_is_first: bool
) -> None:
    rounds.agenda.changed()
    rounds.next()
    steps = [rounds.agenda.wrote, rounds.agenda.stored]
    for step in reversed(steps) if watch_is_first else steps:
        step("8")
    rounds.agenda.looked(600.0)
    assert rounds.next() == 600.0


@pytest.mark.parametrize("version", ["9", ""], ids=["written", "deleted"])
def test_what_somebody_else_did_is_a_cause_beside_our_own_write(
    rounds: Rounds, version: str
) -> None:
    rounds.agenda.changed()
    rounds.next()
    rounds.agenda.wrote("8")
    rounds.agenda.stored(version)
    rounds.agenda.stored("8")
    rounds.agenda.looked(600.0)
    assert rounds.next() == 0


def follow(rounds: Rounds, count: int) -> list[float]:
    """Seconds until each of so many allocations in a row is looked at."""
    found = []
    for _ in range(count):
        rounds.agenda.allocated()
        rounds.agenda.allocated()
        found.append(rounds.next())
        rounds.agenda.looked(None)
    return found


def test_some_allocations_in_a_row_are_looked_at_at_once_and_then_together(rounds: Rounds) -> None:
    assert follow(rounds, 7) == [0, 0, 0, 0, BURST, BURST, BURST]
    assert rounds.nothing_comes()


def test_after_a_quiet_time_they_are_looked_at_at_once_again(rounds: Rounds) -> None:
    follow(rounds, 7)
    rounds.clock.now += 1
    assert follow(rounds, 5) == [0, 0, 0, 0, BURST]


def test_a_change_in_a_burst_is_not_held_up_and_takes_the_burst_along(rounds: Rounds) -> None:
    follow(rounds, 4)
    rounds.agenda.allocated()
    rounds.agenda.changed()
    assert rounds.next() == 0
    rounds.agenda.looked(None)
    assert rounds.nothing_comes()


def test_the_end_ends_the_wait() -> None:
    stop = threading.Event()
    stop.set()
    assert not Rounds().agenda.wait(stop)
