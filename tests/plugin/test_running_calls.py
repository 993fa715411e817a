"""What the end waits for."""

import threading
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from driver.core.ids import ClaimUID
from driver.plugin.preparing.running_calls import RunningCalls
from driver.ports.kubelet import ClaimRef, Failure


def ref(name):
    return ClaimRef(namespace="default", name=name, uid=ClaimUID(name))


class Service:
    """Each call runs until it is let go; "boom" fails."""

    def __init__(self):
        self.came = {name: threading.Event() for name in ("early", "late")}
        self.let_go = {name: threading.Event() for name in ("early", "late")}

    def prepare(self, claims):
        name = claims[0].name
        if name == "boom":
            raise ZeroDivisionError
        self.came[name].set()
        assert self.let_go[name].wait(10)
        return {claims[0].uid: Failure(message=name)}

    def unprepare(self, claims):
        return self.prepare(claims)


def test_the_end_waits_for_the_calls_that_run_then_and_for_none_that_comes_later():
    service = Service()
    calls = RunningCalls(service)
    with ThreadPoolExecutor(3) as pool:
        early = pool.submit(calls.prepare, [ref("early")])
        assert service.came["early"].wait(10)
        assert not calls.wait(0.01)
        ending = pool.submit(calls.wait, 10)
        assert not wait([ending], timeout=0.1).done
        late = pool.submit(calls.unprepare, [ref("late")])
        assert service.came["late"].wait(10)
        service.let_go["early"].set()
        assert ending.result(10)
        assert early.result(10) == {"early": Failure(message="early")}
        assert not late.done()
        service.let_go["late"].set()
        assert late.result(10) == {"late": Failure(message="late")}


def test_a_call_that_failed_has_ended():
    calls = RunningCalls(Service())
    with pytest.raises(ZeroDivisionError):
        calls.prepare([ref("boom")])
    assert calls.wait(0)
