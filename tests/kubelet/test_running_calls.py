"""What the end waits for: calls that run, until their answers have left."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import grpc
import pytest

from driver.core.ids import ClaimUID
from driver.kubelet.running_calls import RunningCalls
from driver.kubelet.server import UnixServer
from driver.kubelet.services import dra_services
from driver.ports.kubelet import ClaimRef, Failure
from hack.fakekubelet import Claim, calls

VERSION = "v1.DRAPlugin"


class Service:
    """Each call runs until it is let go; "boom" fails."""

    def __init__(self) -> None:
        self.came = {name: threading.Event() for name in ("early", "late")}
        self.let_go = {name: threading.Event() for name in ("early", "late")}

    def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[ClaimUID, Any]:
        name = claims[0].name
        if name == "boom":
            raise ZeroDivisionError
        self.came[name].set()
        assert self.let_go[name].wait(10)
        return {claims[0].uid: Failure(message=name)}

    unprepare = prepare


class Slow(grpc.ServerInterceptor):
    """An answer takes its way out when it is let go."""

    def __init__(self) -> None:
        self.out = threading.Event()
        self.leaving = threading.Event()

    def intercept_service(
        self, continuation: Callable[[Any], Any], handler_call_details: Any
    ) -> Any:
        handler = continuation(handler_call_details)

        def serialised(answer: Any) -> bytes:
            self.leaving.set()
            assert self.out.wait(10)
            return bytes(handler.response_serializer(answer))

        return grpc.unary_unary_rpc_method_handler(
            handler.unary_unary, handler.request_deserializer, serialised
        )


class Served:
    def __init__(self, path: Path) -> None:
        self.service = Service()
        self.running = RunningCalls()
        self.way = Slow()
        self.way.out.set()
        self._path = path
        self.server = UnixServer(
            path, dra_services(self.service), workers=4, interceptors=(self.running, self.way)
        )
        self.server.start()

    def prepare(self, name: str) -> str:
        wanted = Claim(namespace="default", name=name, uid=ClaimUID(name))
        with calls.dial(self._path) as channel:
            return calls.prepare(channel, VERSION, [wanted], timeout=20)[wanted.uid].error


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path / "s")
    yield made
    made.server.stop(0)


def test_the_end_waits_for_the_calls_that_run_then_and_for_none_that_comes_later(
    served: Served,
) -> None:
    service, running = served.service, served.running
    with ThreadPoolExecutor(3) as pool:
        early = pool.submit(served.prepare, "early")
        assert service.came["early"].wait(10)
        assert not running.wait(0.01)
        ending = pool.submit(running.wait, 10)
        assert not wait([ending], timeout=0.1).done
        late = pool.submit(served.prepare, "late")
        assert service.came["late"].wait(10)
        service.let_go["early"].set()
        assert ending.result(10)
        assert early.result(10) == "early"
        assert not late.done()
        service.let_go["late"].set()
        assert late.result(10) == "late"


def test_a_call_runs_until_its_answer_has_left(served: Served) -> None:
    served.way.out.clear()
    served.service.let_go["early"].set()
    with ThreadPoolExecutor(1) as pool:
        early = pool.submit(served.prepare, "early")
        assert served.way.leaving.wait(10)
        assert not served.running.wait(0.1)
        served.way.out.set()
        assert served.running.wait(10)
        assert early.result(10) == "early"


def test_a_call_that_failed_has_ended(served: Served) -> None:
    assert "ZeroDivisionError" in served.prepare("boom")
    assert served.running.wait(10)
