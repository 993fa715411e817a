"""Calls that are given up: by a limit, in a bounded number, and forgotten when they return."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from driver.core.errors import CallHangs, NotSupported
from driver.nvml.watchdog import Watchdog


@pytest.fixture
def blocked() -> Iterator[threading.Event]:
    """Calls wait for it; set at the end, so that no test leaves a thread."""
    event = threading.Event()
    yield event
    event.set()


def hang(watchdog: Watchdog, blocked: threading.Event, name: str = "GPU-x") -> CallHangs:
    with pytest.raises(CallHangs) as error:
        watchdog.call(lambda: blocked.wait(30), name=lambda: name)
    return error.value


def test_a_call_gives_its_result_and_raises_its_own_error() -> None:
    watchdog = Watchdog(limit=5)
    assert watchdog.call(lambda: 3, name=lambda: "x") == 3

    def fail() -> int:
        raise NotSupported("no", call="nvmlX", code=3)

    with pytest.raises(NotSupported, match="nvmlX"):
        watchdog.call(fail, name=lambda: "x")
    assert watchdog.hanging == ()


def test_a_call_that_does_not_return_is_given_up_after_the_limit_and_named(blocked) -> None:
    watchdog = Watchdog(limit=0.05)
    began = time.monotonic()
    error = hang(watchdog, blocked)
    assert time.monotonic() - began < 1
    assert "GPU-x" in str(error)
    assert watchdog.hanging == ("GPU-x",)


def test_m1_no_more_than_so_many_hang_and_nothing_is_added(blocked) -> None:
    watchdog = Watchdog(limit=0.02, most=2)
    before = set(threading.enumerate())
    for _ in range(5):
        hang(watchdog, blocked)
    # Threads of other tests may end meanwhile.
    assert len(set(threading.enumerate()) - before) == 2
    assert "none is added" in str(hang(watchdog, blocked))


def test_calls_that_return_are_made_in_one_thread_that_ends_with_the_watchdog() -> None:
    watchdog = Watchdog(limit=5)
    threads = {watchdog.call(threading.current_thread, name=lambda: "x") for _ in range(5)}
    (thread,) = threads
    assert thread is not threading.current_thread()
    del watchdog
    thread.join(5)
    assert not thread.is_alive()


def test_a_thread_whose_call_returned_late_ends_and_takes_no_other_call(blocked) -> None:
    watchdog = Watchdog(limit=0.05, most=2)
    found: list[threading.Thread] = []

    def late() -> None:
        found.append(threading.current_thread())
        blocked.wait(30)

    with pytest.raises(CallHangs):
        watchdog.call(late, name=lambda: "GPU-x")
    assert watchdog.call(threading.current_thread, name=lambda: "x") not in found
    blocked.set()
    found[0].join(5)
    assert not found[0].is_alive()


def test_what_returns_late_is_forgotten_and_calls_go_on(blocked) -> None:
    watchdog = Watchdog(limit=0.02, most=1)
    hang(watchdog, blocked)
    blocked.set()
    while watchdog.hanging:
        threading.Event().wait(0.01)
    assert watchdog.call(lambda: "again", name=lambda: "x") == "again"
