"""What the client does when requests go wrong, and how it behaves towards the server."""

import json
import threading

import pytest

from driver.core.errors import (
    KubeConflict,
    KubeError,
    KubeForbidden,
    KubeGone,
    KubeInvalid,
    KubeNotFound,
    KubeUnavailable,
)
from driver.kube import failures, paths
from driver.kube.client import Client
from driver.kube.throttle import TokenBucket
from driver.ports.resources import NODES, PODS, resource_claims, resource_slices
from hack.fakeapi import ApiServer, Cluster, Settings
from hack.fakeapi.faults import Answer, Cut, Fault, Garbage, Hang, LostAnswer
from tests.fakes.apiserver import objects
from tests.fakes.apiserver.running import Connect

SLICES = resource_slices()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, KubeInvalid),
        (401, KubeForbidden),
        (403, KubeForbidden),
        (404, KubeNotFound),
        (409, KubeConflict),
        (410, KubeGone),
        (413, KubeInvalid),
        (415, KubeError),
        (422, KubeInvalid),
        (429, KubeUnavailable),
        (500, KubeUnavailable),
        (503, KubeUnavailable),
        (504, KubeUnavailable),
    ],
)
def test_each_status_has_its_error(
    status: int, kind: type[KubeError], fake: ApiServer, api: Client
) -> None:
    fake.fail(Answer(status=status, reason="Why", message="because"))
    with pytest.raises(KubeError) as caught:
        api.get(NODES, "node1")
    assert type(caught.value) is kind
    assert caught.value.status == status
    assert str(caught.value) == f"get nodes node1: Why: because (HTTP {status})"


@pytest.mark.parametrize("fault", [Hang(), Cut(), Garbage()])
def test_no_answer_or_half_of_one_is_an_outage(fault: Fault, fake: ApiServer, api: Client) -> None:
    fake.fail(fault)
    with pytest.raises(KubeUnavailable, match="get nodes node1"):
        api.get(NODES, "node1")
    assert len(fake.requests.all()) == 1  # the library does not try again behind our back


def test_a_server_that_is_not_there_is_an_outage(connect: Connect) -> None:
    with ApiServer() as server:
        api = connect(server)
    with pytest.raises(KubeUnavailable, match="Connection refused"):
        api.get(NODES, "node1")


def test_the_servers_wish_for_a_pause_is_passed_on(fake: ApiServer, api: Client) -> None:
    fake.fail(Answer(status=429, retry_after=7))
    with pytest.raises(KubeUnavailable) as caught:
        api.get(NODES, "node1")
    assert caught.value.retry_after == 7.0


def test_a_write_whose_answer_is_lost_has_happened(fake: ApiServer, api: Client) -> None:
    """So a fixed name makes it safe to ask again: the second attempt is a conflict, not a twin."""
    fake.fail(LostAnswer(), verb="create", times=1)
    with pytest.raises(KubeUnavailable):
        api.create(SLICES, objects.resource_slice("a"))
    with pytest.raises(KubeConflict):
        api.create(SLICES, objects.resource_slice("a"))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "3"}, 3.0),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({}, 1.5),
    ],
)
def test_the_pause_is_read_from_header_or_body(
    headers: dict[str, str], seconds: float | None
) -> None:
    status = {"kind": "Status", "reason": "TooMany", "details": {"retryAfterSeconds": 1.5}}
    body = json.dumps(status if not headers else {}).encode()
    assert failures.answered("x", 429, headers, body).retry_after == seconds


def test_a_page_of_a_proxy_is_cut_short_and_on_one_line() -> None:
    error = failures.answered("get nodes", 502, {}, b"<html>\n" + b"secret " * 500)
    assert isinstance(error, KubeUnavailable)
    assert len(str(error)) < 300
    assert "\n" not in str(error)


def test_an_expired_watch_is_gone_by_its_reason_too() -> None:
    assert isinstance(failures.streamed("watch", {"reason": "Expired", "code": 410}), KubeGone)
    assert isinstance(failures.streamed("watch", {"reason": "Expired"}), KubeGone)
    assert isinstance(failures.streamed("watch", {}), KubeUnavailable)


def test_pages_that_expire_halfway_are_read_again_in_one_piece(
    fake: ApiServer, connect: Connect
) -> None:
    for i in range(5):
        fake.cluster.create("resourceslices", objects.resource_slice(f"s{i}"))
    api = connect(fake, page=2)
    forgets_pages(fake.cluster)
    assert len(api.list(SLICES).items) == 5
    assert [r.status for r in fake.requests.all("list")] == [200, 410, 200]


def forgets_pages(cluster: Cluster) -> None:
    original = cluster.list

    def forgetful(*args, **kwargs):
        if kwargs.get("token"):
            cluster.compact()
        return original(*args, **kwargs)

    cluster.list = forgetful  # type: ignore[method-assign]


def test_core_and_namespaced_kinds_are_reached(fake: ApiServer, api: Client) -> None:
    api.create(NODES, objects.node("node1"))
    pod = {"metadata": {"name": "p", "namespace": "default"}, "spec": {"nodeName": "node1"}}
    api.create(PODS, pod)
    assert api.get(PODS, "p", namespace="default")["kind"] == "Pod"
    assert len(api.list(PODS, fields="spec.nodeName=node1").items) == 1
    assert [r.path for r in fake.requests.all("create")] == [
        "/api/v1/nodes",
        "/api/v1/namespaces/default/pods",
    ]


def test_a_path_without_a_name_or_with_the_wrong_scope_is_never_built() -> None:
    with pytest.raises(ValueError, match="without a name"):
        paths.single(NODES, "")
    with pytest.raises(ValueError, match="needs a namespace"):
        paths.single(resource_claims(), "c")
    with pytest.raises(ValueError, match="has no namespace"):
        paths.single(NODES, "n", "default")
    assert paths.single(NODES, "a/../b") == "/api/v1/nodes/a%2F..%2Fb"


def test_writes_wait_for_the_throttle_and_reads_do_not(fake: ApiServer, connect: Connect) -> None:
    now = [0.0]
    api = connect(fake, throttle=TokenBucket(rate=0.001, burst=1, clock=lambda: now[0]))
    api.create(SLICES, objects.resource_slice("a"))
    api.get(SLICES, "a")
    failed: list[Exception] = []

    def write() -> None:
        try:
            api.delete(SLICES, "a")
        except KubeUnavailable as error:
            failed.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    api.get(SLICES, "a")
    api.close()  # else the writer would wait for 1000 s
    writer.join(5)
    assert [str(e) for e in failed] == ["delete resourceslices a: the client is closed"]
    assert len(fake.requests.writes()) == 1


def test_the_server_sees_who_asks(fake: ApiServer, api: Client) -> None:
    api.server_version()
    assert [r.user_agent for r in fake.requests.all()] == ["tessera-test"]


def test_a_version_that_cannot_be_read_is_named(connect: Connect) -> None:
    with (
        ApiServer(settings=Settings(git_version="1.37.2")) as server,
        pytest.raises(KubeError, match=r"gitVersion is '1.37.2'; a form like v1\.37\.2"),
    ):
        connect(server).server_version()
