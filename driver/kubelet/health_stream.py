"""The health service, v1 and v1alpha1: streams of the complete list of devices and their states.

Why it exists: the kubelet shows in a pod's status what it last heard here, and forgets it after a
time; so the list goes out on each change, and again well before it would be forgotten. A stream
holds a worker of the gRPC server for as long as it lives, so there are few of them, and a newer one
ends the oldest: a kubelet that was cut off and comes back must not be refused for its own ghost.

Must not know: why a device is in a state.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

import grpc

from api.kubelet.health.v1 import health_pb2 as v1
from api.kubelet.health.v1alpha1 import health_pb2 as v1alpha1
from driver.kubelet.methods import Service, Streaming
from driver.ports.kubelet import DeviceHealth, DeviceState, HealthFeed

log = logging.getLogger(__name__)

PERIOD: Final = 10.0
"""Seconds between two messages when nothing changes."""
EXPIRY: Final = 30
"""Seconds after which the kubelet says Unknown; its own default."""
MOST_STREAMS: Final = 4
_MESSAGE_BYTES: Final = 1024

_STATES: Final = {
    DeviceState.UNKNOWN: v1.HealthStatus.UNKNOWN,
    DeviceState.HEALTHY: v1.HealthStatus.HEALTHY,
    DeviceState.UNHEALTHY: v1.HealthStatus.UNHEALTHY,
}
"""The numbers are the same in both versions."""


class HealthStreams:
    """`period`: seconds between two messages when nothing changes."""

    def __init__(self, feed: HealthFeed, *, period: float = PERIOD) -> None:
        self._feed = feed
        self._period = period
        self._changed = threading.Condition()
        self._changes = 0
        self._open: deque[object] = deque()
        self._closed = False
        feed.subscribe(self._tell)

    def close(self) -> None:
        """End every stream now, and each that is asked for later: the server is about to stop."""
        self._closed = True
        self._stir()

    def watch(self, context: grpc.ServicerContext) -> Iterator[tuple[DeviceHealth, ...]]:
        """Complete lists, until the caller goes, the server stops or newer streams crowd it out."""
        me = object()
        with self._changed:
            self._open.append(me)
            if len(self._open) > MOST_STREAMS:
                self._open.popleft()
                self._changed.notify_all()
        # False: the call has ended already, and nobody would be woken.
        alive = context.add_callback(self._stir)
        log.info("the kubelet watches the health of devices")
        try:
            while alive and self._wanted(me) and context.is_active():
                with self._changed:
                    seen = self._changes
                yield self._feed.current()
                self._wait(me, seen, context)
        finally:
            with self._changed:
                if me in self._open:
                    self._open.remove(me)

    def _wait(self, me: object, seen: int, context: grpc.ServicerContext) -> None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._changes != seen or not self._wanted(me) or not context.is_active(),
                self._period,
            )

    def _wanted(self, me: object) -> bool:
        return not self._closed and me in self._open

    def _tell(self) -> None:
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    def _stir(self) -> None:
        """Let each stream see whether it should go on, without a message."""
        with self._changed:
            self._changed.notify_all()


def health_services(streams: HealthStreams) -> tuple[Service, ...]:
    """Newest first: the kubelet takes the first version that it knows."""
    return tuple(_service(name, pb, streams) for name, pb in (("v1", v1), ("v1alpha1", v1alpha1)))


def _service(version: str, pb: Any, streams: HealthStreams) -> Service:
    """`pb`: the generated module of that version; the table checks its types when it is built."""
    return Service(
        advertised=f"{version}.DRAResourceHealth",
        descriptor=pb.DESCRIPTOR.services_by_name["DRAResourceHealth"],
        methods=(
            Streaming(
                name="NodeWatchResources",
                request=pb.NodeWatchResourcesRequest,
                response=pb.NodeWatchResourcesResponse,
                call=lambda _, context: (_message(pb, d) for d in streams.watch(context)),
            ),
        ),
    )


def _message(pb: Any, devices: tuple[DeviceHealth, ...]) -> Any:
    return pb.NodeWatchResourcesResponse(
        devices=[
            pb.DeviceHealth(
                device=pb.DeviceIdentifier(pool_name=d.pool, device_name=d.device),
                health=_STATES[d.state],
                last_updated_time=int(d.since),
                health_check_timeout_seconds=EXPIRY,
                message=_clip(d.message),
            )
            for d in devices
        ]
    )


def _clip(text: str) -> str:
    """At most what the kubelet keeps, cut between characters and marked as cut."""
    data = text.encode(errors="replace")
    if len(data) <= _MESSAGE_BYTES:
        return data.decode()
    return data[: _MESSAGE_BYTES - 3].decode(errors="ignore") + "..."
