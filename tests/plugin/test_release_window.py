"""When a release window is open, what it lets go of, and how it ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from driver.plugin.release_window import ReleaseWindow
from driver.plugin.supervise import Supervisor


class Library:
    """Notes what is asked of it. `stuck`: a call inside does not return."""

    def __init__(self, said: list[str]) -> None:
        self._said = said
        self.stuck = False
        self.held = True

    def release(self, seconds: float) -> None:
        self._said.append(f"release {seconds:g}")
        self.held = self.stuck

    def resume(self) -> None:
        self._said.append("resume")


class World:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.now = 100.0
        self.ended = threading.Event()
        self.supervisor = Supervisor()
        self.library = Library(self.said)
        self.wakeup = self.supervisor.wakeup()
        self.window = ReleaseWindow(
            self.library, wakeup=self.wakeup, clock=lambda: self.now, wall=lambda: self.now
        )
        self.window.subscribe(let_go=lambda: self.said.append("let go"), ended=self._end)

    def _end(self) -> None:
        self.said.append("ended")
        self.ended.set()


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.supervisor.end()
    assert world.supervisor.join(10) == []


def test_it_refuses_from_its_start_to_its_end_and_lets_go_of_programs_too(world: World) -> None:
    window = world.window
    assert (window.refusal(), window.is_open()) == ("", False)
    assert window.open(60)
    assert world.said == ["let go", "release 60", "let go"]
    assert "let go of until 00:02:40Z" in window.refusal()
    assert (window.left, window.held) == (60, False)
    assert window.end()
    assert (window.refusal(), window.left) == ("", 0)
    assert world.said[3:] == ["resume", "ended"]
    assert not window.end()


def test_it_says_when_a_call_keeps_nvml_open(world: World) -> None:
    world.library.stuck = True
    assert not world.window.open(60)
    assert world.window.held


def test_it_ends_by_itself_and_then_all_is_looked_at_again(world: World) -> None:
    world.supervisor.start("window", world.window.run)
    world.window.open(60)
    assert not world.ended.is_set()
    world.now += 60
    world.wakeup.wake()
    assert world.ended.wait(10)
    assert not world.window.is_open()


def test_asked_for_again_it_lasts_from_then(world: World) -> None:
    world.supervisor.start("window", world.window.run)
    world.window.open(60)
    world.now += 50
    world.window.open(60)
    assert world.window.left == 60
    world.now += 20
    world.wakeup.wake()
    assert world.window.is_open()
    assert world.said.count("ended") == 0


def test_others_can_have_reset_a_gpu_until_its_last_window_ended(world: World) -> None:
    window = world.window
    world.now += 50
    assert window.free_at == 100, "since then it is held"
    window.open(60)
    world.now += 30
    assert window.free_at == world.now
    window.end()
    world.now += 500
    assert window.free_at == 180


def test_where_nvml_is_closed_between_looks_a_gpu_can_be_reset_at_any_time(world: World) -> None:
    window = ReleaseWindow(
        world.library,
        wakeup=world.wakeup,
        closes=True,
        clock=lambda: world.now,
        wall=lambda: world.now,
    )
    world.now += 50
    assert window.free_at == world.now
