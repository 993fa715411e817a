"""Backoff, throttle and retry: numbers in, numbers out."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, strategies as st

from driver.core.errors import KubeConflict, KubeError, KubeInvalid, KubeUnavailable
from driver.kube.backoff import Backoff
from driver.kube.retry import retry
from driver.kube.throttle import TokenBucket


def ceiling(_: float, high: float) -> float:
    return high


def test_backoff_doubles_to_its_cap_and_starts_again_after_success() -> None:
    backoff = Backoff(base=1.0, cap=5.0, uniform=ceiling)
    assert [backoff.next() for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    backoff.reset()
    assert backoff.next() == 1.0


@given(st.integers(), st.integers(1, 2000))
def test_backoff_stays_between_nothing_and_its_cap(seed: int, attempts: int) -> None:
    backoff = Backoff(base=0.2, cap=30.0, uniform=Random(seed).uniform)
    assert all(0 <= backoff.next() <= 30.0 for _ in range(attempts))


def test_backoff_is_spread_over_the_whole_interval() -> None:
    delays = [Backoff(base=1.0, uniform=Random(seed).uniform).next() for seed in range(200)]
    assert min(delays) < 0.1
    assert max(delays) > 0.9


@pytest.mark.parametrize(("base", "cap"), [(0.0, 1.0), (2.0, 1.0)])
def test_a_backoff_that_cannot_work_is_refused(base: float, cap: float) -> None:
    with pytest.raises(ValueError, match="need 0 < base <= cap"):
        Backoff(base=base, cap=cap)


@dataclass
class Clock:
    now: float = 100.0
    waited: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.waited.append(seconds)
        self.now += seconds
        return False


def test_a_burst_passes_and_then_one_write_per_interval() -> None:
    bucket = TokenBucket(rate=10.0, burst=3, clock=(clock := Clock()))
    assert [bucket.reserve() for _ in range(3)] == [0.0, 0.0, 0.0]
    assert [round(bucket.reserve(), 9) for _ in range(3)] == [0.1, 0.2, 0.3]
    clock.now += 0.3
    assert round(bucket.reserve(), 9) == 0.1


def test_an_idle_time_fills_the_bucket_only_to_its_burst() -> None:
    bucket = TokenBucket(rate=10.0, burst=2, clock=(clock := Clock()))
    clock.now += 3600
    assert [bucket.try_take() for _ in range(3)] == [True, True, False]


@given(st.lists(st.floats(0, 2), min_size=1, max_size=60))
def test_no_window_ever_sees_more_than_burst_plus_rate(gaps: list[float]) -> None:
    bucket = TokenBucket(rate=5.0, burst=4, clock=(clock := Clock()))
    times = []
    for gap in gaps:
        clock.now += gap
        times.append(clock.now + bucket.reserve())
    for i, start in enumerate(times):
        for n, end in enumerate(times[i:], 1):
            assert n <= 4 + 5.0 * (end - start) + 1 + 1e-6


@dataclass
class Operation:
    outcomes: list[KubeError | str]
    calls: int = 0

    def __call__(self) -> str:
        self.calls += 1
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, KubeError):
            raise outcome
        return outcome


def conflict() -> KubeError:
    return KubeConflict("changed", what="replace", status=409)


def down(retry_after: float | None = None) -> KubeError:
    return KubeUnavailable("down", what="replace", status=503, retry_after=retry_after)


def attempt(
    operation: Operation,
    clock: Clock,
    *,
    within: float = 60.0,
    stopped: Callable[[float], bool] | None = None,
) -> str:
    backoff = Backoff(base=1.0, cap=4.0, uniform=ceiling)
    wait = stopped or clock.wait
    return retry(operation, within=within, stopped=wait, backoff=backoff, clock=clock)


def test_conflicts_and_outages_are_tried_again() -> None:
    clock = Clock()
    assert attempt(Operation([conflict(), down(), "done"]), clock) == "done"
    assert clock.waited == [1.0, 2.0]


def test_what_the_server_refuses_is_not_tried_again() -> None:
    operation = Operation([KubeInvalid("bad", what="create", status=422)])
    with pytest.raises(KubeInvalid):
        attempt(operation, Clock())
    assert operation.calls == 1


def test_the_servers_own_pause_is_kept() -> None:
    clock = Clock()
    attempt(Operation([down(7.5), "done"]), clock)
    assert clock.waited == [7.5]


def test_it_gives_up_before_a_pause_that_would_pass_the_deadline() -> None:
    clock, operation = Clock(), Operation([down() for _ in range(9)])
    with pytest.raises(KubeUnavailable):
        attempt(operation, clock, within=8.0)
    assert clock.waited == [1.0, 2.0, 4.0]
    assert operation.calls == 4


def test_it_gives_up_when_the_process_stops() -> None:
    operation = Operation([down(), "never"])
    with pytest.raises(KubeUnavailable):
        attempt(operation, Clock(), stopped=lambda _: True)
    assert operation.calls == 1
