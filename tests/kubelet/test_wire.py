"""Bytes as a kubelet of Go would send and read them, spelled out by hand."""

from __future__ import annotations

import sys
from subprocess import run

import grpc
import pytest

from api.kubelet.dra.v1 import dra_pb2 as v1
from driver.core.ids import ClaimUID
from driver.kubelet.methods import Service
from driver.kubelet.plugin_server import KubeletServer
from driver.ports.kubelet import ClaimRef
from hack import protos
from tests.kubelet.conftest import POD, device, raw

VERSIONS = pytest.mark.parametrize("version", ["v1", "v1beta1"])


def field(number: int, content: bytes) -> bytes:
    """A length-delimited field, short enough for a one-byte length."""
    return bytes([number << 3 | 2, len(content)]) + content


def path(version: str, method: str) -> str:
    return f"/k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin/{method}"


CLAIM = field(1, b"ns") + field(2, b"u-1") + field(3, b"train")
REQUEST = field(1, CLAIM)


@VERSIONS
def test_a_claim_is_read_with_uid_before_name(server, service, version):
    raw(server.paths.service, path(version, "NodePrepareResources"), REQUEST)
    assert service.asked == [(ClaimRef(namespace="ns", name="train", uid=ClaimUID("u-1")),)]


@VERSIONS
def test_a_prepared_device_has_the_contracts_field_numbers(server, version):
    answer = raw(server.paths.service, path(version, "NodePrepareResources"), REQUEST)
    sent = (
        field(1, b"gpu")
        + field(2, b"n1/tessera")
        + field(3, b"gpu-0a1b2c3d")
        + field(4, b"tessera.dev/claim=gpu-0a1b2c3d")
    )
    assert answer == field(1, field(1, b"u-1") + field(2, field(1, sent)))


@pytest.mark.parametrize(("version", "sent"), [("v1", True), ("v1beta1", False)])
def test_a_share_is_sent_as_field_5_of_v1_alone(server, service, version, sent):
    service.on_prepare = lambda claims: {c.uid: (device(share_id="s-1"),) for c in claims}
    answer = raw(server.paths.service, path(version, "NodePrepareResources"), REQUEST)
    assert answer.endswith(field(5, b"s-1")) == sent
    assert (b"s-1" in answer) == sent


@VERSIONS
@pytest.mark.parametrize("method", ["NodePrepareResources", "NodeUnprepareResources"])
def test_success_without_devices_still_has_a_map_entry(server, service, version, method):
    service.on_prepare = lambda claims: dict.fromkeys((c.uid for c in claims), ())
    answer = raw(server.paths.service, path(version, method), REQUEST)
    assert answer == field(1, field(1, b"u-1") + field(2, b""))


@VERSIONS
@pytest.mark.parametrize("method", ["NodePrepareResources", "NodeUnprepareResources"])
def test_an_empty_request_gives_an_empty_answer_and_asks_nobody(server, service, version, method):
    assert raw(server.paths.service, path(version, method), b"") == b""
    assert service.asked == []


def test_get_info_says_type_name_endpoint_and_versions_newest_first(server):
    answer = raw(server.paths.registration, "/pluginregistration.Registration/GetInfo", b"")
    assert answer == (
        field(1, b"DRAPlugin")
        + field(2, b"gpu.tessera.dev")
        + field(3, str(server.paths.service).encode())
        + field(4, b"v1.DRAPlugin")
        + field(4, b"v1beta1.DRAPlugin")
    )
    assert server.paths.service.name == f"dra-{POD}.sock"


def test_health_is_not_served_since_it_is_not_advertised(server: KubeletServer):
    with pytest.raises(grpc.RpcError) as error:
        raw(server.paths.service, "/v1.DRAResourceHealth/NodeWatchResources", b"")
    assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_method_table_that_lacks_a_method_is_refused():
    with pytest.raises(ValueError, match="NodePrepareResources"):
        Service(descriptor=v1.DESCRIPTOR.services_by_name["DRAPlugin"], methods=())


def test_generated_code_matches_the_proto_files():
    assert protos.drift() == []


def test_the_adapter_loads_grpc_and_protobuf_and_nothing_else_of_others():
    program = """
import sys
before = set(sys.modules)
import driver.kubelet.plugin_server
loaded = {m.partition(".")[0] for m in set(sys.modules) - before}
print(*loaded - set(sys.stdlib_module_names))
"""
    shown = run(
        [sys.executable, "-c", program],
        cwd=protos.ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    # grpc takes grpc_tools along where that is installed, as it is for development alone.
    of_grpc = {"grpc", "grpc_tools", "cython_runtime", "typing_extensions"}
    loaded = {m for m in shown.stdout.split() if not m.startswith("_")}
    assert loaded - of_grpc == {"api", "driver", "google"}
