"""Playbooks of the nested loops: what the server did, what was asked next, how long we waited.

No time passes: pauses are recorded, and the clock is a number.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import islice
from types import TracebackType
from typing import Self

import pytest

from driver.core.errors import KubeError, KubeForbidden, KubeGone, KubeUnavailable
from driver.kube.backoff import Backoff
from driver.kube.watching import Pace, Query, forever
from driver.ports.kube import Added, Bookmark, JsonObject, Listing, Resource, WatchEvent
from driver.ports.resources import resource_slices

QUERY = Query(resource=resource_slices(), fields="spec.driver=gpu.tessera.dev")


def obj(version: int) -> JsonObject:
    return {"metadata": {"name": "a", "resourceVersion": str(version)}}


def down(status: int = 500, *, retry_after: float | None = None) -> KubeError:
    return KubeUnavailable("down", what="test", status=status, retry_after=retry_after)


def gone() -> KubeError:
    return KubeGone("too old", what="test", status=410)


Step = WatchEvent | KubeError


@dataclass
class Script:
    """An API that answers lists and watches from a script, and fails the test beyond its end."""

    lists: list[Listing | KubeError]
    watches: list[list[Step] | KubeError]
    asked: list[str] = field(default_factory=list)

    def list(self, _: Resource, **__: object) -> Listing:
        self.asked.append("list")
        answer = self.lists.pop(0)
        if isinstance(answer, KubeError):
            raise answer
        return answer

    def watch(self, kind: Resource, *, since: str, **__: object) -> "Stream":
        self.asked.append(f"watch {since}" if kind == QUERY.resource else f"watch {kind}")
        answer = self.watches.pop(0)
        if isinstance(answer, KubeError):
            raise answer
        return Stream(answer)


@dataclass
class Stream:
    steps: list[Step]

    def __iter__(self) -> Iterator[WatchEvent]:
        for step in self.steps:
            if isinstance(step, KubeError):
                raise step
            yield step

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


@dataclass
class Run:
    script: Script
    pauses: list[float] = field(default_factory=list)
    now: float = 0.0
    stop_after: int = 1000

    def play(self, count: int) -> list[Listing | WatchEvent]:
        pace = Pace(
            stopped=self.stopped,
            backoff=Backoff(base=1.0, cap=8.0, uniform=lambda _, ceiling: ceiling),
            clock=lambda: self.now,
        )
        told = forever(self.script, QUERY, pace, lambda _: nullcontext())  # type: ignore[arg-type]
        return list(islice(told, count))

    def stopped(self, seconds: float) -> bool:
        if seconds:
            self.pauses.append(seconds)
        return len(self.pauses) >= self.stop_after


LISTED = Listing(items=(), version="10")


def test_a_watch_goes_on_from_the_last_version_that_was_told() -> None:
    script = Script([LISTED], [[Added(obj(11)), Bookmark("15")], [Added(obj(16))]])
    run = Run(script)
    assert run.play(4) == [LISTED, Added(obj(11)), Bookmark("15"), Added(obj(16))]
    assert script.asked == ["list", "watch 10", "watch 15"]


@pytest.mark.parametrize("how", ["as an answer", "in the stream"])
def test_when_the_history_is_gone_it_lists_again(how: str) -> None:
    watches: list[list[Step] | KubeError] = [gone() if how == "as an answer" else [gone()]]
    again = Listing(items=(), version="90")
    script = Script([LISTED, again], [*watches, [Added(obj(91))]])
    assert Run(script).play(3) == [LISTED, again, Added(obj(91))]
    assert script.asked == ["list", "watch 10", "list", "watch 90"]


def test_a_broken_stream_is_taken_up_where_it_broke_without_a_list() -> None:
    script = Script([LISTED], [[Added(obj(11)), down(0)], [Added(obj(12))]])
    Run(script).play(3)
    assert script.asked == ["list", "watch 10", "watch 11"]


def test_a_storm_of_errors_is_met_with_longer_and_longer_pauses_up_to_the_cap() -> None:
    script = Script([down()] * 3 + [LISTED], [down()] * 3 + [[Added(obj(11))]])
    run = Run(script)
    run.play(2)
    assert run.pauses == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


def test_a_server_that_says_gone_after_every_list_makes_no_hot_loop() -> None:
    script = Script([LISTED] * 5, [gone()] * 4 + [[Added(obj(11))]])
    run = Run(script)
    run.play(6)
    assert run.pauses == [1.0, 2.0, 4.0, 8.0]


def test_a_server_that_ends_every_connection_at_once_makes_no_hot_loop() -> None:
    script = Script([LISTED], [[], [], [], [Added(obj(11))]])
    run = Run(script)
    run.play(2)
    assert run.pauses == [1.0, 2.0, 4.0]


def test_a_quiet_connection_that_lasted_is_followed_by_the_next_without_a_pause() -> None:
    class Slow(Script):
        def watch(self, kind: Resource, *, since: str, **__: object) -> Stream:
            run.now += 300.0
            return super().watch(kind, since=since)

    script = Slow([LISTED], [[], [], [Added(obj(11))]])
    run = Run(script)
    run.play(2)
    assert run.pauses == []


def test_after_an_event_the_next_failure_is_the_first_one_again() -> None:
    script = Script([LISTED], [down(), down(), [Added(obj(11)), down()], [Added(obj(12))]])
    run = Run(script)
    run.play(3)
    assert run.pauses == [1.0, 2.0, 1.0]


def test_what_the_server_asks_for_is_never_undercut() -> None:
    script = Script([down(429, retry_after=40.0), LISTED], [])
    run = Run(script)
    run.play(1)
    assert run.pauses == [40.0]


def test_a_missing_permission_is_asked_for_again_and_said() -> None:
    refused = KubeForbidden("no", what="list resourceslices", status=403)
    script = Script([refused, LISTED], [])
    run = Run(script)
    assert run.play(1) == [LISTED]
    assert run.pauses == [1.0]


def test_a_stop_during_a_pause_ends_it() -> None:
    script = Script([down()] * 9, [])
    run = Run(script, stop_after=2)
    assert run.play(5) == []
    assert script.asked == ["list", "list"]
