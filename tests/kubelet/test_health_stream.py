"""The kubelet's view of device health, over real sockets and both versions of the service."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from api.kubelet.health.v1 import health_pb2 as v1
from api.kubelet.health.v1alpha1 import health_pb2 as v1alpha1
from driver.core.ids import DeviceName, PoolName
from driver.kubelet import health_stream
from driver.kubelet.health_stream import MOST_STREAMS
from driver.ports.kubelet import DeviceHealth, DeviceState
from hack.fakekubelet import Claim, calls
from tests.kubelet.conftest import Build

VERSIONS = {"v1": v1, "v1alpha1": v1alpha1}


def health(state: DeviceState = DeviceState.HEALTHY, message: str = "") -> DeviceHealth:
    return DeviceHealth(
        pool=PoolName("n1/tessera"),
        device=DeviceName("gpu-0a1b2c3d"),
        state=state,
        since=1700000000.9,
        message=message,
    )


class Feed:
    def __init__(self) -> None:
        self.devices: tuple[DeviceHealth, ...] = (health(),)
        self.told: list[Callable[[], None]] = []

    def current(self) -> tuple[DeviceHealth, ...]:
        return self.devices

    def subscribe(self, on_change: Callable[[], None]) -> None:
        self.told.append(on_change)

    def set(self, *devices: DeviceHealth) -> None:
        self.devices = devices
        for each in self.told:
            each()


@pytest.fixture
def feed() -> Feed:
    return Feed()


@pytest.fixture
def served(build: Build, feed: Feed) -> Any:
    made = build(health=feed)
    made.start()
    return made


def watch(channel: grpc.Channel, version: str = "v1", timeout: float = 20) -> Any:
    pb = VERSIONS[version]
    return channel.unary_stream(
        f"/{version}.DRAResourceHealth/NodeWatchResources",
        request_serializer=pb.NodeWatchResourcesRequest.SerializeToString,
        response_deserializer=pb.NodeWatchResourcesResponse.FromString,
    )(pb.NodeWatchResourcesRequest(), timeout=timeout)


@pytest.fixture
def channel(served: Any) -> Iterator[grpc.Channel]:
    with calls.dial(served.paths.service) as made:
        yield made


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stream_begins_with_the_list_and_goes_on_with_each_change(channel, feed, version):
    stream = watch(channel, version)
    (first,) = next(stream).devices
    assert (first.device.pool_name, first.device.device_name) == ("n1/tessera", "gpu-0a1b2c3d")
    assert (first.health, first.last_updated_time) == (v1.HealthStatus.HEALTHY, 1700000000)
    assert first.health_check_timeout_seconds == 30
    feed.set(health(DeviceState.UNHEALTHY, "xid-79 since 10:00"), health(DeviceState.UNKNOWN))
    sick, unclear = next(stream).devices
    assert (sick.health, sick.message) == (v1.HealthStatus.UNHEALTHY, "xid-79 since 10:00")
    assert unclear.health == v1.HealthStatus.UNKNOWN


def test_the_list_is_sent_again_before_the_kubelet_forgets_it(build, feed, monkeypatch):
    assert health_stream.PERIOD < health_stream.EXPIRY / 2
    streams = health_stream.HealthStreams(feed, period=0.05)
    monkeypatch.setattr("driver.kubelet.plugin_server.HealthStreams", lambda _: streams)
    made = build(health=feed)
    made.start()
    with calls.dial(made.paths.service) as channel:
        stream = watch(channel)
        assert [len(next(stream).devices) for _ in range(4)] == [1] * 4


def test_both_versions_are_advertised_only_when_they_are_served(build, feed, served):
    plain = build(pod_uid="other-pod")
    assert [v for v in served._registration.info.supported_versions if "Health" in v] == [
        "v1.DRAResourceHealth",
        "v1alpha1.DRAResourceHealth",
    ]
    assert not [v for v in plain._registration.info.supported_versions if "Health" in v]
    plain.start()
    with calls.dial(plain.paths.service) as channel, pytest.raises(grpc.RpcError) as refused:
        next(watch(channel))
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_a_kubelet_that_comes_back_crowds_out_its_own_ghosts(channel, feed):
    streams = []
    for _ in range(MOST_STREAMS):
        streams.append(watch(channel))
        assert len(next(streams[-1]).devices) == 1  # so that the server has them in this order
    newest = watch(channel)
    assert len(next(newest).devices) == 1
    assert list(streams[0]) == []
    feed.set(health(DeviceState.UNHEALTHY))
    for stream in (*streams[1:], newest):
        assert next(stream).devices[0].health == v1.HealthStatus.UNHEALTHY


def test_streams_take_no_worker_from_claims(channel, feed, served, service):
    streams = [watch(channel) for _ in range(MOST_STREAMS)]
    for stream in streams:
        next(stream)
    together = threading.Barrier(16)

    def meet(claims: Any) -> Any:
        together.wait(10)
        return dict.fromkeys((c.uid for c in claims), ())

    service.on_prepare = meet
    claim = Claim(namespace="ns", name="a", uid="u-a")
    with ThreadPoolExecutor(16) as callers:
        done = callers.map(
            lambda _: calls.prepare(channel, "v1.DRAPlugin", [claim], timeout=15), range(16)
        )
    assert [r["u-a"].error for r in done] == [""] * 16


def test_the_end_of_the_plugin_does_not_wait_for_streams(channel, served):
    stream = watch(channel)
    next(stream)
    began = time.monotonic()
    assert served.stop(20)
    assert time.monotonic() - began < 5
    assert list(stream) == []


@pytest.mark.parametrize(
    ("message", "sent"),
    [("x" * 1024, "x" * 1024), ("x" * 1025, "x" * 1021 + "..."), ("ä" * 600, "ä" * 510 + "...")],
    ids=["fits", "too long", "cut between characters"],
)
def test_a_message_is_cut_to_what_the_kubelet_keeps(channel, feed, message, sent):
    feed.devices = (health(message=message),)
    assert next(watch(channel)).devices[0].message == sent
