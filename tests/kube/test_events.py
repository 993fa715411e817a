"""Events are best effort: they never block, never raise, and never flood."""

from threading import Event, Thread

from driver.kube.client import Client
from driver.kube.events import MAX_NOTE, WAITING, Recorder
from driver.kube.throttle import TokenBucket
from driver.ports.events import Reason, Regarding
from hack.fakeapi import ApiServer
from hack.fakeapi.faults import Answer
from tests.fakes.apiserver.running import Connect

CLAIM = Regarding(
    api_version="resource.k8s.io/v1", kind="ResourceClaim", name="c", namespace="team", uid="u"
)


class Counted:
    """A recorder, and how many events it dropped."""

    def __init__(self, api: Client, limit: TokenBucket | None = None) -> None:
        self.dropped = 0
        self.recorder = Recorder(
            api, controller="gpu.tessera.dev", instance="node1", dropped=self._drop, limit=limit
        )
        self.event, self.run = self.recorder.event, self.recorder.run

    def _drop(self) -> None:
        self.dropped += 1


def send_all(sender: Counted) -> None:
    stop = Event()
    stop.set()
    sender.run(stop)


def test_an_event_stands_beside_the_object_it_is_about(fake: ApiServer, api: Client) -> None:
    sender = Counted(api)
    sender.event(CLAIM, Reason.RECOVERED, "x" * 2000)
    send_all(sender)
    (request,) = fake.requests.writes()
    assert request.path == "/apis/events.k8s.io/v1/namespaces/team/events"
    assert request.status == 201
    kept = [obj for key, obj in fake.cluster.history._objects.items() if key[1] == "team"]
    assert kept[0]["regarding"]["uid"] == "u"
    assert len(kept[0]["note"]) == MAX_NOTE


def test_what_exceeds_the_limit_is_dropped_and_counted(fake: ApiServer, api: Client) -> None:
    sender = Counted(api, TokenBucket(rate=0.001, burst=3))
    for _ in range(10):
        sender.event(CLAIM, Reason.DEVICE_READY, "flapping")
    send_all(sender)
    assert len(fake.requests.writes()) == 3
    assert sender.dropped == 7


def test_a_queue_that_nobody_reads_does_not_block(api: Client) -> None:
    sender = Counted(api, TokenBucket(burst=10 * WAITING))
    for _ in range(WAITING + 5):
        sender.event(CLAIM, Reason.DEVICE_READY, "n")
    assert sender.dropped == 5


def test_a_server_that_refuses_events_stops_nothing(fake: ApiServer, connect: Connect) -> None:
    fake.fail(Answer(status=403, reason="Forbidden"), verb="create", times=1)
    sender = Counted(connect(fake))
    stop = Event()
    thread = Thread(target=sender.run, args=(stop,))
    thread.start()
    sender.event(CLAIM, Reason.DEVICE_WITHHELD, "first", warning=True)
    sender.event(CLAIM, Reason.DEVICE_WITHHELD, "second", warning=True)
    fake.requests.wait_for("create", "events", count=2)
    stop.set()
    thread.join(5)
    assert not thread.is_alive()
    assert [r.status for r in fake.requests.writes()] == [403, 201]
    assert sender.dropped == 1
