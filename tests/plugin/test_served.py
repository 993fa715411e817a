"""The API version: asked once for all who want it, remembered, asked again after an error."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from driver.core.errors import KubeUnavailable
from driver.plugin.served import Served, ServedVersion

CALLERS = 16


class Server:
    """Answers when it is let to, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.away = True
        self.go = threading.Event()

    def ask(self) -> str:
        self.asked += 1
        assert self.go.wait(10)
        if self.away:
            raise KubeUnavailable("no answer in time", what="discover")
        return "v1"


def failure(get: Callable[[], object]) -> str:
    with pytest.raises(KubeUnavailable) as caught:
        get()
    return str(caught.value)


def test_all_who_come_while_one_asks_take_its_error_and_the_next_one_asks_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting = threading.Semaphore(0)

    class Counted(Future[Served]):
        def result(self, timeout: float | None = None) -> Served:
            waiting.release()
            return super().result(timeout)

    monkeypatch.setattr("driver.plugin.served.Future", Counted)
    server = Server()
    served = ServedVersion(server.ask)
    with ThreadPoolExecutor(CALLERS) as callers:
        answers = [callers.submit(failure, served.get) for _ in range(CALLERS)]
        for _ in range(CALLERS - 1):
            assert waiting.acquire(timeout=10)
        server.go.set()
        assert len({each.result(10) for each in answers}) == 1
    assert server.asked == 1
    server.away = False
    assert served.get().version == "v1"
    assert served.get().slices.version == "v1"
    assert server.asked == 2
