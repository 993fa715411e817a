"""One registration: GetInfo over a new socket, the checks, and what the plugin is told.

The deadlines and refusals are the kubelet's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc

from api.kubelet.registration.v1 import registration_pb2 as pb
from hack.fakekubelet.calls import dial

INFO_DEADLINE: Final = 1.0
NOTIFY_DEADLINE: Final = 5.0
_SERVICE: Final = "/pluginregistration.Registration"


class Rejected(Exception):
    """The text that the plugin gets with plugin_registered=false."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginInfo:
    driver: str
    endpoint: Path
    version: str


def ask(socket: Path, known: Sequence[str]) -> PluginInfo:
    with dial(socket) as channel:
        call = channel.unary_unary(
            f"{_SERVICE}/GetInfo", pb.InfoRequest.SerializeToString, pb.PluginInfo.FromString
        )
        try:
            info = call(pb.InfoRequest(), timeout=INFO_DEADLINE)
        except grpc.RpcError as error:
            raise Rejected(f"GetInfo failed: {error.code().name}: {error.details()}") from error
    return accept(info, socket, known)


def accept(info: pb.PluginInfo, socket: Path, known: Sequence[str]) -> PluginInfo:
    if info.type != "DRAPlugin":
        raise Rejected(f"no handler registered for plugin type: {info.type}")
    if not info.name:
        raise Rejected("the plugin has no name")
    endpoint = Path(info.endpoint) if info.endpoint else socket
    if not endpoint.is_absolute():
        raise Rejected(f"endpoint {info.endpoint} is not an absolute path")
    version = next((v for v in info.supported_versions if v in known), None)
    if version is None:
        raise Rejected(f"none of {list(info.supported_versions)} is supported, only {list(known)}")
    return PluginInfo(driver=info.name, endpoint=endpoint, version=version)


def notify(socket: Path, error: str) -> None:
    """Raises `Rejected` if the plugin cannot even be told."""
    status = pb.RegistrationStatus(plugin_registered=not error, error=error)
    with dial(socket) as channel:
        call = channel.unary_unary(
            f"{_SERVICE}/NotifyRegistrationStatus",
            pb.RegistrationStatus.SerializeToString,
            pb.RegistrationStatusResponse.FromString,
        )
        try:
            call(status, timeout=NOTIFY_DEADLINE)
        except grpc.RpcError as failure:
            raise Rejected(f"NotifyRegistrationStatus failed: {failure.details()}") from failure
