"""Names, and who may remove what."""

from __future__ import annotations

import os
import socket
import stat
from contextlib import contextmanager
from pathlib import Path

import pytest

from driver.core.errors import ConfigError
from driver.kubelet.sockets import MAX_PATH, check_directory, remove_dead, socket_paths
from tests.kubelet.conftest import DRIVER, OTHER_POD, POD

PLUGINS = Path("/var/lib/kubelet/plugins")
REGISTRY = Path("/var/lib/kubelet/plugins_registry")


def names(driver: str, pod_uid: str) -> tuple[str, str]:
    found = socket_paths(
        driver=driver, plugin_dir=PLUGINS / driver, registrar_dir=REGISTRY, pod_uid=pod_uid
    )
    assert found.service.parent == PLUGINS / driver
    assert found.registration.parent == REGISTRY
    assert max(len(str(found.service)), len(str(found.registration))) <= MAX_PATH
    return found.service.name, found.registration.name


def dead_socket(path: Path) -> Path:
    """As after a SIGKILL: the file is there, nobody listens."""
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(path))
    return path


@contextmanager
def live_socket(path: Path):
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(path))
        s.listen()
        yield path


@pytest.mark.parametrize(
    ("driver", "pod_uid", "service", "registration"),
    [
        (DRIVER, POD, f"dra-{POD}.sock", f"{DRIVER}-{POD}-reg.sock"),
        (DRIVER, "", "dra.sock", f"{DRIVER}-reg.sock"),
        ("d" * 27, POD, f"dra-{POD}.sock", f"{'d' * 27}-{POD}-reg.sock"),
        ("d" * 28, POD, f"dra-{POD}.sock", f"{'d' * 28}-5oHDs9YdOzk-reg.sock"),
        ("d" * 36, POD, f"dra-{POD}.sock", f"{'d' * 36}-5oHDs9YdOzk-reg.sock"),
        ("d" * 37, POD, "dra-5oHDs9YdOzk.sock", f"{'d' * 37}-5oHDs9YdOzk-reg.sock"),
        ("d" * 60, POD, "dra-5oHDs9YdOzk.sock", "dra-VJJDpy0friq8cLelCaEQOw-reg.sock"),
    ],
)
def test_names_are_the_contracts_and_shortened_where_they_do_not_fit(
    driver, pod_uid, service, registration
):
    assert names(driver, pod_uid) == (service, registration)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"plugin_dir": Path("plugins")}, "plugin directory plugins is not absolute"),
        ({"registrar_dir": Path("r")}, "registrar directory r is not absolute"),
        ({"plugin_dir": Path("/" + "x" * 90)}, "exceeds the 107 bytes"),
        ({"driver": ""}, "driver name is empty"),
        ({"pod_uid": "../../etc"}, "pod UID '../../etc' has a slash"),
    ],
)
def test_what_cannot_be_a_socket_name_is_refused(changes, part):
    sound = {"driver": DRIVER, "plugin_dir": PLUGINS, "registrar_dir": REGISTRY, "pod_uid": POD}
    with pytest.raises(ConfigError, match=part):
        socket_paths(**(sound | changes))


def test_a_longest_name_can_be_served_and_asked(build, node):
    """The limit as the kernel and gRPC see it, not as we count it."""
    room = MAX_PATH - len(str(node.plugin_dir)) - 1 - len(f"dra-{POD}.sock")
    deep = node.plugin_dir / ("x" * (room - 1))
    deep.mkdir()
    server = build(plugin_dir=deep, driver_name="d" * 63)
    assert len(str(server.paths.service)) == MAX_PATH
    server.start()
    assert server.probe() is None


@pytest.mark.parametrize("which", ["plugin_dir", "registrar_dir"])
def test_a_missing_directory_is_named_with_the_next_step(build, node, which):
    gone = node.plugin_dir / "gone"
    with pytest.raises(ConfigError, match=rf"{gone} is not a directory; mount it"):
        build(**{which: gone}).start()
    assert node.sockets() == set()


def test_a_directory_that_cannot_be_written_is_refused(node):
    node.registrar_dir.parent.chmod(0o755)
    node.registrar_dir.chmod(0o555)
    me = os.geteuid()
    try:
        if me == 0:  # root may write anywhere
            os.seteuid(65534)
        with pytest.raises(ConfigError, match="is not writable; run as root"):
            check_directory("registrar directory", node.registrar_dir)
    finally:
        os.seteuid(me)


@pytest.mark.parametrize("which", ["service", "registration"])
def test_a_plain_file_in_the_way_is_refused_and_left_alone(build, node, which):
    server = build()
    path = getattr(server.paths, which)
    path.write_text("mine")
    with pytest.raises(ConfigError, match=f"{path} is in the way"):
        server.start()
    assert path.read_text() == "mine"
    assert node.sockets() == {path.name}


def test_own_stale_sockets_are_replaced_by_private_ones(build, node):
    server = build()
    dead_socket(server.paths.service)
    dead_socket(server.paths.registration)
    server.start()
    assert server.probe() is None
    assert node.sockets() == {server.paths.service.name, server.paths.registration.name}
    for path in (server.paths.service, server.paths.registration):
        assert stat.S_IMODE(path.lstat().st_mode) == 0o600
    assert stat.S_IMODE(node.plugin_dir.lstat().st_mode) == 0o700


def test_sockets_of_dead_pods_of_this_driver_are_removed_and_no_others(node):
    registrar, plugin = node.registrar_dir, node.plugin_dir
    ours = [
        dead_socket(registrar / f"{DRIVER}-{OTHER_POD}-reg.sock"),
        dead_socket(registrar / f"{DRIVER}-reg.sock"),
        dead_socket(registrar / f"{DRIVER}-5oHDs9YdOzk-reg.sock"),
        dead_socket(plugin / f"dra-{OTHER_POD}.sock"),
        dead_socket(plugin / "dra.sock"),
    ]
    kept = [
        dead_socket(registrar / f"{DRIVER}.other-reg.sock"),
        dead_socket(registrar / f"{DRIVER}-training-reg.sock"),
        dead_socket(registrar / f"{DRIVER}-abcdefghijk-reg.sock"),
        dead_socket(registrar / f"x{DRIVER}-{OTHER_POD}-reg.sock"),
    ]
    (plugin / "dra-state.json").write_text("{}")
    with live_socket(plugin / f"dra-{POD}.sock") as alive:
        remove_dead(driver=DRIVER, plugin_dir=plugin, registrar_dir=registrar)
        assert alive.exists()
    assert [p.name for p in ours if p.exists()] == []
    assert [p.name for p in kept if not p.exists()] == []
    assert (plugin / "dra-state.json").exists()


def test_a_live_pod_with_a_full_backlog_is_alive(node):
    path = node.registrar_dir / f"{DRIVER}-{OTHER_POD}-reg.sock"
    with socket.socket(socket.AF_UNIX) as s, socket.socket(socket.AF_UNIX) as first:
        s.bind(str(path))
        s.listen(0)
        first.connect(str(path))
        remove_dead(driver=DRIVER, plugin_dir=node.plugin_dir, registrar_dir=node.registrar_dir)
        assert path.exists()
