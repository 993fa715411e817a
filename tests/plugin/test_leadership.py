"""Who speaks for the node: one plugin, until its end begins; then the next."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from driver.plugin.leadership import Leadership
from driver.plugin.supervise import Supervisor
from driver.state.named_locks import NamedLocks


class Plugin:
    """One plugin's lead over one folder, and a thread that works under it."""

    def __init__(self, folder: Path) -> None:
        self.notes = folder / "notes"
        self.works, self.ended, self.follows = (threading.Event() for _ in range(3))
        self.may_end = threading.Event()
        self.may_end.set()
        self.problems: list[str] = []
        self.problem_told = threading.Event()
        self.supervisor = Supervisor()
        self.lead = Leadership(
            NamedLocks(folder / "locks"),
            follows=self.follows.set,
            failed=self.failed,
            leads=lambda: self._note("leads"),
            ends=lambda: self._note("ends"),
        )
        self.supervisor.start("publisher", self.lead.led(self.work))
        self.supervisor.start("lead", self.lead.run)

    def _note(self, what: str) -> None:
        with self.notes.open("a") as notes:
            notes.write(f"{what} ")

    def failed(self, problem: str) -> None:
        self.problems.append(problem)
        self.problem_told.set()

    def work(self, stop: threading.Event) -> None:
        self.works.set()
        stop.wait()
        assert self.may_end.wait(10)
        self.ended.set()

    def end(self) -> None:
        self.may_end.set()
        self.supervisor.end()
        assert self.supervisor.join(10) == []
        assert self.supervisor.failure is None


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Plugin]]:
    started: list[Plugin] = []

    def make() -> Plugin:
        started.append(Plugin(tmp_path))
        return started[-1]

    yield make
    for each in started:
        each.end()


def test_the_second_plugin_waits_until_the_end_of_the_first_begins(
    start: Callable[[], Plugin],
) -> None:
    first = start()
    assert first.works.wait(10)
    second = start()
    assert second.follows.wait(10)
    assert not second.works.is_set()
    first.supervisor.end()
    assert second.works.wait(10)
    assert first.ended.is_set()


def test_the_lead_is_kept_until_what_is_being_written_is_written(
    start: Callable[[], Plugin],
) -> None:
    first = start()
    assert first.works.wait(10)
    second = start()
    first.may_end.clear()
    first.supervisor.end()
    assert not second.works.wait(0.3)
    first.may_end.set()
    assert second.works.wait(10)


def test_the_end_of_a_lead_is_told_before_the_next_begins_whatever_still_runs(
    start: Callable[[], Plugin],
) -> None:
    first = start()
    assert first.works.wait(10)
    second = start()
    first.may_end.clear()
    first.supervisor.end()
    assert second.works.wait(10)
    assert not first.ended.is_set()
    assert first.notes.read_text() == "leads ends leads "


def test_a_plugin_that_ends_while_it_waits_has_never_worked(start: Callable[[], Plugin]) -> None:
    first = start()
    assert first.works.wait(10)
    second = start()
    assert second.follows.wait(10)
    second.end()
    assert not second.works.is_set()
    assert not first.ended.is_set()


def test_a_folder_without_room_for_the_lock_is_told_and_tried_again(tmp_path: Path) -> None:
    plugin = Plugin(tmp_path / "later")
    assert plugin.problem_told.wait(10)
    assert "cannot open the lock" in plugin.problems[0]
    (tmp_path / "later").mkdir()
    assert plugin.works.wait(10)
    plugin.end()
