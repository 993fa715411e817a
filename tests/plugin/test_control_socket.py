"""The one name of a node's control socket, through the overlap of two plugins."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from driver.core.errors import ConfigError
from driver.plugin.control.socket import NAME, ControlSocket


def answers(folder: Path, listening: socket.socket) -> bool:
    """Whether who connects by the name reaches this one."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(folder / NAME))
        listening.setblocking(False)
        try:
            listening.accept()[0].close()
        except BlockingIOError:
            return False
        return True


def test_it_is_for_its_owner_alone_and_is_removed(tmp_path: Path) -> None:
    made = ControlSocket(tmp_path, owner="pod-1")
    with made.listen() as listening:
        assert stat.S_IMODE(made.path.stat().st_mode) == 0o600
        assert [each.name for each in tmp_path.iterdir()] == [NAME]
        assert answers(tmp_path, listening)
    made.remove()
    assert list(tmp_path.iterdir()) == []


def test_the_newest_has_the_name_and_an_older_one_leaves_it_alone(tmp_path: Path) -> None:
    old, new = (ControlSocket(tmp_path, owner=owner) for owner in ("pod-1", "pod-2"))
    with old.listen() as first, new.listen() as second:
        assert (answers(tmp_path, second), answers(tmp_path, first)) == (True, False)
        old.remove()
        assert answers(tmp_path, second)
    new.remove()
    assert not new.path.exists()


def test_what_a_killed_plugin_left_is_no_hindrance(tmp_path: Path) -> None:
    killed = ControlSocket(tmp_path, owner="pod-1")
    killed.listen().close()
    with ControlSocket(tmp_path, owner="pod-1").listen() as listening:
        assert answers(tmp_path, listening)


def test_a_folder_in_the_way_ends_the_start_with_its_path(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    with pytest.raises(ConfigError, match=f"{NAME} cannot be made"):
        ControlSocket(tmp_path, owner="pod-1").listen()
