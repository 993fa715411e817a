"""NodePrepareResources and NodeUnprepareResources as the kubelet makes them, in both versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import grpc

from api.kubelet.dra.v1 import dra_pb2 as v1
from api.kubelet.dra.v1beta1 import dra_pb2 as v1beta1
from api.kubelet.health.v1 import health_pb2 as health_v1
from api.kubelet.health.v1alpha1 import health_pb2 as health_v1alpha1

DEADLINE: Final = 45.0
VERSIONS: Final = {"v1.DRAPlugin": v1, "v1beta1.DRAPlugin": v1beta1}
HEALTH: Final = {
    "v1.DRAResourceHealth": health_v1,
    "v1alpha1.DRAResourceHealth": health_v1alpha1,
}
_OPTIONS: Final = (
    # Go clients say localhost; Python's would send the encoded path.
    ("grpc.default_authority", "localhost"),
    ("grpc.use_local_subchannel_pool", 1),
    # The kubelet reconnects at once.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


class Refused(Exception):
    """The kubelet would not start the pod: the call failed, or the answer breaks the contract."""


class ClaimLike(Protocol):
    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_ids: tuple[str, ...]
    share_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimResult:
    """`error` not empty: the claim failed, and devices do not count."""

    devices: tuple[Device, ...] = ()
    error: str = ""


def dial(socket: Path) -> grpc.Channel:
    return grpc.insecure_channel(f"unix:{socket}", options=_OPTIONS)


def watch_health(channel: grpc.Channel, version: str, *, timeout: float) -> Iterator[Any]:
    """Complete lists of devices, as the kubelet hears them: the first at once."""
    pb: Any = HEALTH[version]
    service = pb.DESCRIPTOR.services_by_name["DRAResourceHealth"].full_name
    stream: Iterator[Any] = channel.unary_stream(
        f"/{service}/NodeWatchResources",
        pb.NodeWatchResourcesRequest.SerializeToString,
        pb.NodeWatchResourcesResponse.FromString,
    )(pb.NodeWatchResourcesRequest(), timeout=timeout)
    for message in stream:
        yield message.devices


def prepare(
    channel: grpc.Channel, version: str, claims: Sequence[ClaimLike], *, timeout: float
) -> dict[str, ClaimResult]:
    answer = _call(channel, version, "NodePrepareResources", claims, timeout)
    return {
        uid: ClaimResult(devices=tuple(_device(d) for d in entry.devices), error=entry.error)
        for uid, entry in answer.items()
    }


def unprepare(
    channel: grpc.Channel, version: str, claims: Sequence[ClaimLike], *, timeout: float
) -> dict[str, ClaimResult]:
    answer = _call(channel, version, "NodeUnprepareResources", claims, timeout)
    return {uid: ClaimResult(error=entry.error) for uid, entry in answer.items()}


def _call(
    channel: grpc.Channel, version: str, method: str, claims: Sequence[ClaimLike], timeout: float
) -> Mapping[str, Any]:
    pb: Any = VERSIONS[version]
    service = pb.DESCRIPTOR.services_by_name["DRAPlugin"].full_name
    request, response = getattr(pb, f"{method}Request"), getattr(pb, f"{method}Response")
    call = channel.unary_unary(
        f"/{service}/{method}", request.SerializeToString, response.FromString
    )
    message = request(
        claims=[pb.Claim(namespace=c.namespace, name=c.name, uid=c.uid) for c in claims]
    )
    try:
        answer: Mapping[str, Any] = call(message, timeout=timeout).claims
    except grpc.RpcError as error:
        raise Refused(f"{method} failed: {error.code().name}: {error.details()}") from error
    asked = {c.uid for c in claims}
    if unknown := answer.keys() - asked:
        raise Refused(f"{method} answers for claims not asked about: {sorted(unknown)}")
    if skipped := asked - answer.keys():
        raise Refused(f"{method} skipped {len(skipped)} ResourceClaims: {sorted(skipped)}")
    return answer


def _device(d: Any) -> Device:
    shared = "share_id" in d.DESCRIPTOR.fields_by_name and d.HasField("share_id")
    return Device(
        requests=tuple(d.request_names),
        pool=d.pool_name,
        device=d.device_name,
        cdi_ids=tuple(d.cdi_device_ids),
        share_id=d.share_id if shared else None,
    )
