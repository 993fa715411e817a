"""The node's condition on an API server: ours alone, kept over restarts, tried until it is in."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from driver.kube.backoff import Backoff
from driver.kube.client import Client
from driver.kube.login import login
from driver.plugin.health.condition import CONDITION, Condition, NodeCondition
from driver.plugin.supervise import Wakeup
from driver.ports.resources import NODES
from hack.fakeapi import ApiServer
from hack.fakeapi.faults import Answer

READY = Condition(status="True", reason="AllReady", message="8 of 8 GPUs are ready")
SICK = Condition(status="False", reason="Withheld", message="7 of 8 GPUs are ready: xid-79")
START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as made:
        yield made


@pytest.fixture
def client(api: ApiServer, tmp_path: Any) -> Iterator[Client]:
    api.write_kubeconfig(tmp_path / "kubeconfig")
    made = Client(login(kubeconfig=str(tmp_path / "kubeconfig")), user_agent="test")
    made.create(NODES, {"metadata": {"name": "n1"}})
    made.patch_status(
        NODES, "n1", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    )
    yield made
    made.close()


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def tick(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)


def writer(client: Client, clock: Clock) -> NodeCondition:
    return NodeCondition(
        client, node="n1", pauses=Backoff(base=0.5, cap=30), wakeup=Wakeup(), now=clock
    )


def conditions(client: Client) -> dict[str, dict[str, str]]:
    return {c["type"]: c for c in client.get(NODES, "n1")["status"]["conditions"]}


def test_nothing_is_written_before_the_first_judgement(client):
    assert writer(client, Clock()).write() is None
    assert conditions(client).keys() == {"Ready"}


def test_ours_is_written_and_the_others_stay(client):
    made = writer(client, Clock())
    made.set(READY)
    assert made.write() == 300
    found = conditions(client)
    assert found["Ready"]["status"] == "True"
    assert found[CONDITION] == {
        "type": CONDITION,
        "status": "True",
        "reason": "AllReady",
        "message": "8 of 8 GPUs are ready",
        "lastHeartbeatTime": "2026-01-02T03:04:05Z",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }


def test_a_heartbeat_keeps_the_time_of_the_transition_and_a_transition_moves_it(client):
    clock = Clock()
    made = writer(client, clock)
    made.set(READY)
    made.write()
    clock.tick(300)
    made.write()
    beat = conditions(client)[CONDITION]
    assert beat["lastTransitionTime"] == "2026-01-02T03:04:05Z"
    assert beat["lastHeartbeatTime"] == "2026-01-02T03:09:05Z"
    clock.tick(60)
    made.set(SICK)
    made.write()
    assert conditions(client)[CONDITION]["lastTransitionTime"] == "2026-01-02T03:10:05Z"


def test_changes_in_quick_succession_are_one_write_of_the_last(api, client):
    api.requests.clear()
    made, stop = writer(client, Clock()), threading.Event()
    thread = threading.Thread(target=made.run, args=(stop,))
    thread.start()
    for each in (READY, SICK, READY, SICK):
        made.set(each)
    api.requests.wait(lambda _: bool(api.requests.writes()))
    stop.set()
    made.set(READY)  # wakes it, to see that it is to end
    thread.join(5)
    assert len(api.requests.writes()) == 1
    assert conditions(client)[CONDITION]["status"] == "False"


def test_a_restart_keeps_the_time_of_the_transition(client):
    clock = Clock()
    first = writer(client, clock)
    first.set(SICK)
    first.write()
    clock.tick(1000)
    second = writer(client, clock)
    second.set(SICK)
    second.write()
    assert conditions(client)[CONDITION]["lastTransitionTime"] == "2026-01-02T03:04:05Z"


def test_a_restart_writes_nothing_while_what_is_stored_says_it_all(client):
    clock = Clock()
    first = writer(client, clock)
    first.set(SICK)
    first.write()
    clock.tick(100)
    second = writer(client, clock)
    second.set(SICK)
    assert second.write() == 200
    assert conditions(client)[CONDITION]["lastHeartbeatTime"] == "2026-01-02T03:04:05Z"
    clock.tick(200)
    assert second.write() == 300
    assert conditions(client)[CONDITION]["lastHeartbeatTime"] == "2026-01-02T03:09:05Z"


def test_a_refused_write_is_tried_again_with_the_newest_condition(client, api):
    made = writer(client, Clock())
    made.set(SICK)
    api.fail(Answer(status=403), verb="patch", resource="nodes/status", times=1)
    pause = made.write()
    assert pause is not None
    assert pause < 300
    assert CONDITION not in conditions(client)
    made.set(READY)
    assert made.write() == 300
    assert conditions(client)[CONDITION]["reason"] == "AllReady"


def test_a_node_that_is_made_anew_gets_the_condition_again(client):
    made = writer(client, Clock())
    made.set(READY)
    made.write()
    client.delete(NODES, "n1")
    assert made.write() != 300
    client.create(NODES, {"metadata": {"name": "n1"}})
    assert made.write() == 300
    assert conditions(client)[CONDITION]["status"] == "True"
