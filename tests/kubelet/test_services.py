"""Whatever the plugin does inside, the kubelet gets one entry for each claim."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from driver.core.errors import StateError
from driver.core.ids import ClaimUID
from driver.kubelet.plugin_server import SERVICE_WORKERS as WORKERS
from driver.ports.kubelet import OP_ID, Failure
from hack.fakekubelet import Claim, FakeKubelet, calls
from tests.kubelet.conftest import DRIVER, Build, Gate, Node, device, raw

A = Claim(namespace="ns", name="a", uid="u-a")
B = Claim(namespace="ns", name="b", uid="u-b")


@pytest.fixture(params=["v1.DRAPlugin", "v1beta1.DRAPlugin"])
def kubelet(request, node, server):
    with FakeKubelet(node.registrar_dir, known=(request.param,)) as made:
        assert made.wait_registered(DRIVER)
        assert made.registered(DRIVER)[0].version == request.param
        yield made


def test_a_prepared_claim_comes_back_with_its_devices(kubelet):
    given = kubelet.prepare(DRIVER, [A])["u-a"]
    assert given.error == ""
    assert [(d.requests, d.pool, d.device) for d in given.devices] == [
        (("gpu",), "n1/tessera", "gpu-0a1b2c3d")
    ]


def test_one_claims_failure_leaves_the_other_alone(kubelet, service):
    service.on_prepare = lambda _: {"u-a": Failure(message="GPU is withheld"), "u-b": (device(),)}
    given = kubelet.prepare(DRIVER, [A, B])
    assert (given["u-a"].error, given["u-a"].devices) == ("GPU is withheld", ())
    assert (given["u-b"].error, len(given["u-b"].devices)) == ("", 1)


def test_an_unprepare_failure_is_told(kubelet, service):
    service.on_unprepare = lambda _: {"u-a": Failure(message="still in use"), "u-b": None}
    given = kubelet.unprepare(DRIVER, [A, B])
    assert (given["u-a"].error, given["u-b"].error) == ("still in use", "")


@pytest.mark.parametrize("call", ["prepare", "unprepare"])
def test_an_exception_becomes_an_error_of_every_claim_asked(kubelet, service, caplog, call):
    def broken(_):
        raise KeyError("oops")

    service.on_prepare = service.on_unprepare = broken
    given = getattr(kubelet, call)(DRIVER, [A, B])
    assert given.keys() == {"u-a", "u-b"}
    for result in given.values():
        assert "KeyError: 'oops'" in result.error
        assert "op_id" in result.error
    failures = [r for r in caplog.records if r.exc_info]
    assert [r.getMessage() for r in failures] == ["the claim service failed"]


def test_an_error_of_ours_is_shown_as_it_is(kubelet, service):
    def broken(_):
        raise StateError("ledger.json: disk full; free space and retry")

    service.on_prepare = broken
    assert kubelet.prepare(DRIVER, [A])["u-a"].error == (
        "ledger.json: disk full; free space and retry"
    )


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        ({}, "no answer for claim ns/a (u-a)"),
        ({"u-other": ()}, "no answer for claim ns/a (u-a)"),
        ({"u-a": Failure(message="")}, "failed without a reason"),
        ({"u-a": Failure(message="bad name \udcff")}, "bad name ?"),
        ({"u-a": (None,)}, "internal error (AttributeError"),
        (None, "internal error (TypeError"),
    ],
    ids=["missing", "another's", "empty text", "not UTF-8", "no device", "no mapping"],
)
def test_a_broken_answer_becomes_an_error_of_its_claim(kubelet, service, answer, part):
    service.on_prepare = lambda _: answer
    given = kubelet.prepare(DRIVER, [A])
    assert given.keys() == {"u-a"}
    assert part in given["u-a"].error
    assert given["u-a"].devices == ()


def test_a_claim_named_twice_is_asked_for_once(kubelet, service):
    given = kubelet.prepare(DRIVER, [A, A, B])
    assert [[str(c.uid) for c in claims] for claims in service.asked] == [["u-a", "u-b"]]
    assert len(given["u-a"].devices) == 1


def test_sixteen_calls_are_served_at_once(kubelet, service):
    together = threading.Barrier(16)

    def meet(claims):
        together.wait(10)
        return {c.uid: (device(),) for c in claims}

    service.on_prepare = meet
    with ThreadPoolExecutor(16) as callers:
        given = callers.map(lambda _: kubelet.prepare(DRIVER, [A])["u-a"].error, range(16))
    assert list(given) == [""] * 16


def test_registration_answers_while_all_workers_are_busy_and_the_probe_notices(server, service):
    gate = Gate()
    arrived = threading.Barrier(WORKERS + 1)

    def held(claims):
        arrived.wait(10)
        return gate(claims)

    service.on_prepare = held
    with (
        ThreadPoolExecutor(WORKERS) as callers,
        calls.dial(server.paths.service) as channel,
    ):
        running = [
            callers.submit(calls.prepare, channel, "v1.DRAPlugin", [A], timeout=20)
            for _ in range(WORKERS)
        ]
        arrived.wait(10)
        info = raw(
            server.paths.registration, "/pluginregistration.Registration/GetInfo", b"", timeout=1
        )
        complaint = server.probe(timeout=0.2)
        gate.open()
        assert [r.result()["u-a"].error for r in running] == [""] * WORKERS
    assert b"DRAPlugin" in info
    assert complaint is not None
    assert "NodePrepareResources: DEADLINE_EXCEEDED" in complaint
    assert server.probe() is None


class Recorder:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def observe(self, method: str, seconds: float, outcome: str) -> None:
        assert seconds >= 0
        self.seen.append((method.rpartition("/")[2], outcome))


def test_each_call_is_logged_and_counted_under_one_op_id(build: Build, node: Node, service, caplog):
    caplog.set_level(logging.INFO, logger="driver.kubelet")
    inside: list[str] = []

    def answer(claims):
        inside.append(OP_ID.get())
        return {ClaimUID("u-a"): (device(),), ClaimUID("u-b"): Failure(message="no room")}

    service.on_prepare = answer
    metrics = Recorder()
    server = build(metrics=metrics)
    server.start()
    assert server.probe() is None
    with FakeKubelet(node.registrar_dir) as kubelet:
        assert kubelet.wait_registered(DRIVER)
        kubelet.prepare(DRIVER, [A, B])
    server.stop(1)
    assert metrics.seen == [
        ("GetInfo", "ok"),
        ("NotifyRegistrationStatus", "ok"),
        ("NodePrepareResources", "claim_error"),
    ]
    line = next(r for r in caplog.records if r.levelno == logging.WARNING)
    assert line.getMessage().endswith("NodePrepareResources: claim_error")
    assert line.__dict__["op_id"] == inside[0]
    assert line.__dict__["claims"] == ["ns/a (u-a)", "ns/b (u-b)"]
    assert line.__dict__["failed"] == {"u-b": "no room"}
