"""Ask our own sockets, as the kubelet would, whether they are served.

Why it exists: the kubelet does not probe plugins, so liveness has to. Going through the real
sockets finds what no flag inside the process can: a removed socket, or workers that all hang.
A probe says so in its metadata, so that it is neither counted nor taken for the kubelet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, TypeVar

import grpc
from google.protobuf.message import Message

from api.kubelet.dra.v1 import dra_pb2 as dra
from api.kubelet.registration.v1 import registration_pb2 as registration

_MARK: Final = ("tessera-probe", "1")
_OPTIONS: Final = (
    ("grpc.default_authority", "localhost"),
    # Without it a refused connection is remembered, and the next probe fails untried.
    ("grpc.use_local_subchannel_pool", 1),
)

A = TypeVar("A", bound=Message)


def is_probe(metadata: Iterable[tuple[str, str | bytes]]) -> bool:
    return any(key == _MARK[0] for key, _ in metadata)


def probe(
    *,
    registration_socket: Path,
    service_socket: Path,
    info: registration.PluginInfo,
    timeout: float,
) -> str | None:
    """None if both services answer within `timeout` seconds each, else what is wrong."""
    service = dra.DESCRIPTOR.services_by_name["DRAPlugin"].full_name
    try:
        found = _ask(
            registration_socket,
            "/pluginregistration.Registration/GetInfo",
            registration.InfoRequest(),
            registration.PluginInfo.FromString,
            timeout,
        )
        answer = _ask(
            service_socket,
            f"/{service}/NodePrepareResources",
            dra.NodePrepareResourcesRequest(),
            dra.NodePrepareResourcesResponse.FromString,
            timeout,
        )
    except _NoAnswer as error:
        return str(error)
    if found != info:
        return (
            f"{registration_socket} is served by another plugin, {found.name} at {found.endpoint}"
        )
    if answer.claims:
        return f"{service_socket} answers for claims that nobody asked about"
    return None


class _NoAnswer(Exception):
    pass


def _ask(
    socket: Path, method: str, request: Message, decode: Callable[[bytes], A], timeout: float
) -> A:
    with grpc.insecure_channel(f"unix:{socket}", options=_OPTIONS) as channel:
        call = channel.unary_unary(method, type(request).SerializeToString, decode)
        try:
            return call(request, timeout=timeout, metadata=(_MARK,))
        except grpc.RpcError as error:
            raise _NoAnswer(
                f"{socket} does not answer {method}: {error.code().name}, {error.details()}"
            ) from error
