"""The registration as a kubelet of each kind does it, over real sockets."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from api.kubelet.registration.v1 import registration_pb2 as pb
from driver.core.errors import ConfigError
from driver.kubelet.registration import RegistrationStatus
from hack.fakekubelet import Claim, FakeKubelet, Refused, handshake
from tests.kubelet.conftest import DRIVER, OTHER_POD, Build, Node, raw

A = Claim(namespace="ns", name="a", uid="u-a")


def test_a_registered_plugin_knows_it(node, server):
    assert not server.wait_registered(0)
    with FakeKubelet(node.registrar_dir) as kubelet:
        assert server.wait_registered(10)
        assert kubelet.wait_registered(DRIVER)
    assert server.status == RegistrationStatus(registered=True, error="")


def test_a_refusal_is_recorded_and_not_final(node, server):
    old = FakeKubelet(node.registrar_dir, known=("v1alpha3.Node",))
    old.scan()
    assert not server.status.registered
    assert "none of ['v1.DRAPlugin', 'v1beta1.DRAPlugin'] is supported" in server.status.error
    with FakeKubelet(node.registrar_dir):
        assert server.wait_registered(10)
    assert server.status.error == ""


def test_a_restarted_kubelet_finds_the_same_sockets(node, server):
    before = server.paths.registration.stat()
    for _ in range(2):
        with FakeKubelet(node.registrar_dir) as kubelet:
            assert kubelet.wait_registered(DRIVER)
            assert kubelet.prepare(DRIVER, [A])["u-a"].error == ""
    after = server.paths.registration.stat()
    assert (after.st_ino, after.st_ctime_ns) == (before.st_ino, before.st_ctime_ns)


def test_a_registration_that_broke_off_is_forced_by_a_new_socket(build: Build, node):
    server = build(patience=0.1)
    server.start()
    with FakeKubelet(node.registrar_dir, lost_notifications=2) as kubelet:
        assert kubelet.wait_registered(DRIVER)
        assert len(kubelet.refusals) == 2
    assert server.probe() is None


def test_with_default_patience_that_kubelet_never_asks_again(node, server):
    kubelet = FakeKubelet(node.registrar_dir, lost_notifications=1)
    for _ in range(3):
        kubelet.scan()
    assert len(kubelet.refusals) == 1
    assert not server.status.registered


def test_a_probe_is_not_taken_for_the_kubelet(server):
    """Or each would start the clock at whose end the socket is made anew."""
    assert server.probe() is None
    assert server._registration._handshake.asked_at is None
    raw(server.paths.registration, "/pluginregistration.Registration/GetInfo", b"")
    assert server._registration._handshake.asked_at is not None


def test_a_socket_that_cannot_be_made_anew_is_fatal(build: Build, node):
    told, failed = [], threading.Event()

    def fatal(error: Exception) -> None:
        told.append(error)
        failed.set()

    server = build(patience=0.1, on_fatal=fatal)
    server.start()
    node.registrar_dir.rename(node.registrar_dir.with_name("moved"))
    FakeKubelet(node.registrar_dir.with_name("moved"), lost_notifications=1).scan()
    assert failed.wait(10)
    assert isinstance(told[0], ConfigError)
    assert "cannot listen in" in str(told[0])
    complaint = server.probe()
    assert complaint is not None
    assert "GetInfo: UNAVAILABLE" in complaint
    node.registrar_dir.with_name("moved").rename(node.registrar_dir)


def test_a_removed_registration_socket_fails_the_probe(server):
    server.paths.registration.unlink()
    complaint = server.probe()
    assert complaint is not None
    assert "does not answer /pluginregistration.Registration/GetInfo" in complaint


def test_two_pods_of_one_driver_serve_side_by_side(build: Build, node: Node):
    first, second = build(), build(pod_uid=OTHER_POD)
    with FakeKubelet(node.registrar_dir) as kubelet:
        first.start()
        assert kubelet.wait_registered(DRIVER)
        second.start()
        assert kubelet.wait_registered(DRIVER, instances=2)
        assert kubelet.prepare(DRIVER, [A])["u-a"].error == ""
        first.stop(1)
        assert kubelet.wait_registered(DRIVER, instances=1)
        assert kubelet.unprepare(DRIVER, [A])["u-a"].error == ""
        second.stop(1)
        assert kubelet.wait_registered(DRIVER, instances=0)
        with pytest.raises(Refused, match="is not registered"):
            kubelet.prepare(DRIVER, [A])
    assert node.sockets() == set()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"type": "CSIPlugin"}, "plugin type: CSIPlugin"),
        ({"name": ""}, "no name"),
        ({"endpoint": "dra.sock"}, "not an absolute path"),
        ({"supported_versions": ["k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"]}, "none of"),
    ],
)
def test_the_fake_kubelet_refuses_what_a_kubelet_refuses(node, changes, reason):
    sound: dict[str, Any] = {
        "type": "DRAPlugin",
        "name": DRIVER,
        "endpoint": "/dra.sock",
        "supported_versions": ["v1.DRAPlugin"],
    }
    known = ("v1.DRAPlugin",)
    socket = node.registrar_dir / "x.sock"
    assert handshake.accept(pb.PluginInfo(**sound), socket, known).version == "v1.DRAPlugin"
    with pytest.raises(handshake.Rejected, match=reason):
        handshake.accept(pb.PluginInfo(**(sound | changes)), socket, known)
