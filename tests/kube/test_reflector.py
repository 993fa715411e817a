"""A reflector against a server that misbehaves, over real HTTP and real sockets."""

import ssl
import time
from pathlib import Path
from queue import SimpleQueue

import pytest
import trustme

from driver.kube.backoff import Backoff
from driver.kube.client import Client
from driver.kube.login import login
from driver.kube.reflector import Reflector
from driver.kube.watching import Patience, Query
from driver.ports.kube import Change, JsonObject
from driver.ports.resources import resource_slices
from hack.fakeapi import ApiServer
from hack.fakeapi.faults import Answer, Cut, ErrorEvent, Hang, Silence
from tests.fakes.apiserver import objects
from tests.fakes.apiserver.running import Connect, Run

SLICES = resource_slices()
QUERY = Query(resource=SLICES, fields="spec.driver=gpu.tessera.dev")


def quick(api: Client, *, silence: float = 5.0) -> Reflector:
    patience = Patience(lasting=(5.0, 10.0), silence=silence, settled=0.0)
    return Reflector(api, QUERY, backoff=Backoff(base=0.01, cap=0.02), patience=patience)


def make(server: ApiServer, *names: str) -> None:
    for name in names:
        server.cluster.create("resourceslices", objects.resource_slice(name))


def follow(reflector: Reflector) -> SimpleQueue[Change]:
    changes: SimpleQueue[Change] = SimpleQueue()
    reflector.subscribe(changes.put)
    return changes


def test_a_forgotten_history_leads_to_a_new_list_that_tells_what_was_missed(
    fake: ApiServer, api: Client, run: Run
) -> None:
    make(fake, "a", "b")
    reflector = quick(api)
    changes = follow(reflector)
    fake.fail(Cut(), verb="watch")
    run(reflector)
    assert [changes.get(timeout=5).key[1] for _ in "ab"] == ["a", "b"]
    fake.requests.wait_for("watch", "resourceslices")
    fake.cluster.delete("resourceslices", "a")
    fake.cluster.compact()
    fake.faults.clear()
    gone = changes.get(timeout=5)
    assert (gone.key, gone.new) == (("", "a"), None)
    assert len(fake.requests.all("list")) == 2


def test_a_deletion_by_another_is_told_at_once(fake: ApiServer, api: Client, run: Run) -> None:
    make(fake, "a")
    reflector = quick(api)
    changes = follow(reflector)
    run(reflector)
    changes.get(timeout=5)
    fake.requests.wait_for("watch", "resourceslices")
    assert fake.cluster.delete_all("resourceslices", fields="spec.nodeName=node1") == 1
    assert changes.get(timeout=5).new is None


def test_an_error_event_is_a_failure_and_the_watch_goes_on(
    fake: ApiServer, api: Client, run: Run
) -> None:
    fake.fail(ErrorEvent(status=500, reason="InternalError"), verb="watch", times=2)
    reflector = quick(api)
    changes = follow(reflector)
    run(reflector)
    fake.requests.wait_for("watch", "resourceslices", count=3)
    make(fake, "a")
    assert changes.get(timeout=5).key == ("", "a")
    assert len(fake.requests.all("list")) == 1


def test_a_stream_that_falls_silent_is_replaced(fake: ApiServer, api: Client, run: Run) -> None:
    fake.fail(Silence(), verb="watch", times=1)
    reflector = quick(api, silence=0.4)  # bookmarks come every 0.2 s
    changes = follow(reflector)
    run(reflector)
    fake.requests.wait_for("watch", "resourceslices", count=1)
    make(fake, "a")
    assert changes.get(timeout=5).key == ("", "a")
    assert len(fake.requests.all("watch")) == 2


def test_bookmarks_keep_a_quiet_stream_open(fake: ApiServer, api: Client, run: Run) -> None:
    """More than twice the allowed silence passes, and there is still the first connection."""
    reflector = quick(api, silence=0.7)
    running = run(reflector)
    fake.requests.wait_for("watch", "resourceslices")
    assert not running.stop.wait(1.5)
    assert len(fake.requests.all("watch")) == 1


def test_a_storm_of_500_is_not_answered_with_a_storm_of_requests(
    fake: ApiServer, api: Client, run: Run
) -> None:
    rule = fake.fail(Answer(status=500), verb="watch")
    reflector = Reflector(api, QUERY, backoff=Backoff(base=0.1, cap=5.0, uniform=lambda _, c: c))
    running = run(reflector)
    assert not running.stop.wait(1.2)
    assert 2 <= rule.hits <= 4  # at 0, 0.1, 0.3, 0.7 s; the next comes at 1.5 s
    assert "500" in reflector.trouble
    assert reflector.has_synced()


def test_it_has_not_synced_while_the_list_fails_and_says_why(
    fake: ApiServer, api: Client, run: Run
) -> None:
    fake.fail(Answer(status=403, reason="Forbidden", message="no RBAC"), verb="list", times=3)
    reflector = quick(api)
    run(reflector)
    assert reflector.wait_synced(5)
    assert [r.status for r in fake.requests.all("list")] == [403, 403, 403, 200]


def test_a_server_that_restarts_is_found_again(fake: ApiServer, api: Client, run: Run) -> None:
    reflector = quick(api)
    changes = follow(reflector)
    run(reflector)
    fake.requests.wait_for("watch", "resourceslices")
    fake.fail(Cut(), times=3)
    fake.end_watches()
    make(fake, "a")
    assert changes.get(timeout=5).key == ("", "a")


def test_an_own_write_is_visible_before_its_event(fake: ApiServer, api: Client, run: Run) -> None:
    fake.fail(Silence(), verb="watch")
    reflector = quick(api)
    run(reflector)
    assert reflector.wait_synced(5)
    reflector.observe(api.create(SLICES, objects.resource_slice("a")))
    stored = reflector.get("a")
    assert stored is not None
    assert stored["kind"] == "ResourceSlice"


def stops_quickly(api: Client, server: ApiServer, run: Run) -> None:
    """Once an event has come the reader is in the stream; nothing more comes for a minute."""
    reflector = quick(api, silence=60.0)
    changes = follow(reflector)
    running = run(reflector)
    server.requests.wait_for("watch", "resourceslices")
    make(server, "a")
    assert changes.get(timeout=5).key == ("", "a")
    began = time.monotonic()
    running.stop.set()
    running.thread.join(5)
    assert not running.thread.is_alive()
    assert time.monotonic() - began < 1.0


def test_a_stop_ends_a_read_that_is_blocked(connect: Connect, run: Run) -> None:
    with ApiServer() as server:
        stops_quickly(connect(server), server, run)


def test_a_stop_ends_a_read_that_is_blocked_under_tls(run: Run, tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with ApiServer(tls=context) as server:
        path = server.write_kubeconfig(tmp_path / "kubeconfig", ca=str(tmp_path / "ca.pem"))
        api = Client(login(kubeconfig=str(path)), user_agent="tessera-test")
        stops_quickly(api, server, run)
        api.close()


def test_a_stop_that_comes_while_the_stream_opens_is_not_lost(
    fake: ApiServer, api: Client, run: Run
) -> None:
    """The watch is in the log before its answer is here."""
    fake.fail(Silence(), verb="watch")
    running = run(quick(api, silence=60.0))
    fake.requests.wait_for("watch", "resourceslices")
    running.stop.set()
    running.thread.join(5)
    assert not running.thread.is_alive()


@pytest.mark.parametrize("verb", ["list", "watch"])
def test_a_stop_waits_no_longer_than_the_time_out_of_a_request_without_answer(
    verb: str, fake: ApiServer, connect: Connect, run: Run
) -> None:
    fake.fail(Hang(), verb=verb)
    running = run(quick(connect(fake)))
    fake.requests.wait_for(verb, "resourceslices")
    running.stop.set()
    running.thread.join(3)
    assert not running.thread.is_alive()


def test_only_what_is_kept_is_stored_and_what_is_not_kept_any_more_is_gone(
    fake: ApiServer, api: Client, run: Run
) -> None:
    """What comes with a list, with a watch, with a change, and what a deletion says."""

    def keep(obj: JsonObject) -> JsonObject | None:
        if obj["spec"]["pool"]["resourceSliceCount"] > 1:
            return None
        return {"metadata": {k: obj["metadata"][k] for k in ("name", "resourceVersion")}}

    make(fake, "listed")
    fake.cluster.create("resourceslices", objects.resource_slice("ignored", count=2))
    reflector = Reflector(api, QUERY, backoff=Backoff(base=0.01, cap=0.02), keep=keep)
    changes = follow(reflector)
    run(reflector)
    fake.requests.wait_for("watch", "resourceslices")
    fake.cluster.create("resourceslices", objects.resource_slice("also-ignored", count=2))
    make(fake, "watched")
    listed = fake.cluster.get("resourceslices", "listed")
    listed["spec"]["pool"]["resourceSliceCount"] = 2
    fake.cluster.update("resourceslices", listed)
    fake.cluster.delete("resourceslices", "ignored")
    fake.cluster.delete("resourceslices", "watched")
    told = [changes.get(timeout=5) for _ in range(4)]
    assert [(c.key[1], c.new is not None) for c in told] == [
        ("listed", True),
        ("watched", True),
        ("listed", False),
        ("watched", False),
    ]
    assert all(set(c.new) == {"metadata"} for c in told if c.new)
    assert reflector.snapshot() == ()
