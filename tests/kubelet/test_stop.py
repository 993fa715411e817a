"""Leaving: the registration socket first, then what runs, and only what is ours."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from hack.fakekubelet import Claim, FakeKubelet, Refused, calls
from tests.kubelet.conftest import DRIVER, Build, Gate, Node

A = Claim(namespace="ns", name="a", uid="u-a")


def test_a_running_call_is_finished_after_the_sockets_are_gone(server, service, node: Node):
    service.on_prepare = gate = Gate()
    with (
        FakeKubelet(node.registrar_dir) as kubelet,
        ThreadPoolExecutor(2) as others,
        calls.dial(server.paths.service) as channel,
    ):
        assert kubelet.wait_registered(DRIVER)
        running = others.submit(calls.prepare, channel, "v1.DRAPlugin", [A], timeout=20)
        assert gate.inside.wait(10)
        stopping = others.submit(server.stop, 10.0)
        assert kubelet.wait_registered(DRIVER, instances=0)
        assert not running.done()
        gate.open()
        assert running.result()["u-a"].error == ""
        assert stopping.result() is True
    assert node.sockets() == set()


def test_a_call_that_outlives_the_grace_is_cut_off_and_reported(server, service, caplog):
    service.on_prepare = gate = Gate()
    with ThreadPoolExecutor(1) as others, calls.dial(server.paths.service) as channel:
        running = others.submit(calls.prepare, channel, "v1.DRAPlugin", [A], timeout=20)
        assert gate.inside.wait(10)
        assert server.stop(0.1) is False
        with pytest.raises(Refused, match="NodePrepareResources failed"):
            running.result()
        gate.open()
    assert "calls still run 0.1 s after the stop" in caplog.messages


def test_the_next_process_keeps_the_sockets_that_the_last_one_leaves(build: Build, node: Node):
    """Without a pod UID both have the same names."""
    last, following = build(pod_uid=""), build(pod_uid="")
    last.start()
    following.start()
    assert last.stop(1) is True
    assert following.probe() is None
    assert following.stop(1) is True
    assert node.sockets() == set()


def test_stopping_twice_or_before_the_start_does_nothing(build: Build, node: Node):
    server = build()
    assert server.stop(0) is True
    started = build()
    started.start()
    assert [started.stop(0), started.stop(0)] == [True, True]
    assert node.sockets() == set()
