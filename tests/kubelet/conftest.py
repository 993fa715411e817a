"""The plugin's gRPC side over real sockets, with a claim service that tests script."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from driver.core.ids import CdiId, ClaimUID, DeviceName, PoolName
from driver.kubelet.plugin_server import KubeletServer
from driver.ports.kubelet import ClaimRef, Failure, PrepareAnswer, PreparedDevice, UnprepareAnswer

DRIVER = "gpu.tessera.dev"
POD = "3f2c1a00-1111-4222-8333-0123456789ab"
OTHER_POD = "9d0e7b44-aaaa-4bbb-8ccc-ba9876543210"


def device(name: str = "gpu-0a1b2c3d", share_id: str | None = None) -> PreparedDevice:
    return PreparedDevice(
        requests=("gpu",),
        pool=PoolName("n1/tessera"),
        device=DeviceName(name),
        cdi_ids=(CdiId(f"tessera.dev/claim={name}"),),
        share_id=share_id,
    )


@dataclass
class ScriptedService:
    """Gives every claim one device, unless told otherwise."""

    on_prepare: Callable[[Sequence[ClaimRef]], Any] | None = None
    on_unprepare: Callable[[Sequence[ClaimRef]], Any] | None = None
    asked: list[tuple[ClaimRef, ...]] = field(default_factory=list)

    def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[ClaimUID, PrepareAnswer]:
        self.asked.append(tuple(claims))
        if self.on_prepare:
            return self.on_prepare(claims)  # type: ignore[no-any-return]
        return {c.uid: (device(),) for c in claims}

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[ClaimUID, UnprepareAnswer]:
        self.asked.append(tuple(claims))
        if self.on_unprepare:
            return self.on_unprepare(claims)  # type: ignore[no-any-return]
        return dict.fromkeys((c.uid for c in claims), None)


class Gate:
    """Holds calls inside the service until opened; `inside` tells that one has arrived."""

    def __init__(self) -> None:
        self.inside = threading.Event()
        self._open = threading.Event()

    def __call__(self, claims: Sequence[ClaimRef]) -> Mapping[ClaimUID, PrepareAnswer]:
        self.inside.set()
        if not self._open.wait(20):
            return {c.uid: Failure(message="nobody opened the gate") for c in claims}
        return {c.uid: (device(),) for c in claims}

    def open(self) -> None:
        self._open.set()


@dataclass(frozen=True, kw_only=True)
class Node:
    plugin_dir: Path
    registrar_dir: Path

    def sockets(self) -> set[str]:
        return {p.name for d in (self.plugin_dir, self.registrar_dir) for p in d.iterdir()}


@pytest.fixture
def node() -> Iterator[Node]:
    # Not tmp_path: with a test's name in it a socket would not fit into 107 bytes.
    with tempfile.TemporaryDirectory(prefix="kt") as root:
        made = Node(plugin_dir=Path(root, "p"), registrar_dir=Path(root, "r"))
        made.plugin_dir.mkdir()
        made.registrar_dir.mkdir()
        yield made


@pytest.fixture
def service() -> ScriptedService:
    return ScriptedService()


Build = Callable[..., KubeletServer]


@pytest.fixture
def build(node: Node, service: ScriptedService) -> Iterator[Build]:
    """Make servers with test defaults; whatever was built is stopped at the end."""
    built: list[KubeletServer] = []

    def make(**changes: Any) -> KubeletServer:
        arguments: dict[str, Any] = {
            "driver_name": DRIVER,
            "plugin_dir": node.plugin_dir,
            "registrar_dir": node.registrar_dir,
            "pod_uid": POD,
            "service": service,
        }
        built.append(KubeletServer(**(arguments | changes)))
        return built[-1]

    yield make
    for server in built:
        server.stop(0)


@pytest.fixture
def server(build: Build) -> KubeletServer:
    made = build()
    made.start()
    return made


def raw(socket: Path, method: str, request: bytes, timeout: float = 5.0) -> bytes:
    """A call with bytes in and out: what is on the wire, without our generated code."""
    with grpc.insecure_channel(
        f"unix:{socket}", options=[("grpc.default_authority", "localhost")]
    ) as channel:
        call = channel.unary_unary(
            method, request_serializer=lambda b: b, response_deserializer=lambda b: b
        )
        answer: bytes = call(request, timeout=timeout)
        return answer
