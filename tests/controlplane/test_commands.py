"""The parts of the bare control plane that can be seen without starting it."""

import json
import os
from pathlib import Path

import pytest

from hack.controlplane import pki
from hack.controlplane.commands import Plan, Ports
from hack.controlplane.component import Component, cpu_ticks
from hack.controlplane.plane import free_ports
from hack.kind.shell import Failure

PORTS = Ports(etcd=1, peer=2, apiserver=3, controllers=4, scheduler=5)


def plan(folder: Path) -> Plan:
    return Plan(ports=PORTS, pki=pki.create(folder, port=PORTS.apiserver), folder=folder)


def test_every_file_that_a_command_names_was_written(tmp_path):
    made = plan(tmp_path)
    suffixes = (".crt", ".key", ".conf")
    named = [
        value
        for argv in (made.apiserver(), made.controllers(), made.scheduler())
        for _, _, value in (word.partition("=") for word in argv)
        if value.endswith(suffixes)
    ]
    assert len(named) == 13
    assert [path for path in named if not Path(path).is_file()] == []


def test_each_component_is_a_user_of_its_own(tmp_path):
    plan(tmp_path)
    credentials = set()
    for name in pki.USERS:
        config = json.loads((tmp_path / f"{name}.conf").read_text())
        assert config["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:3"
        credentials.add(Path(config["users"][0]["user"]["client-key"]).read_text())
    assert len(credentials) == len(pki.USERS)


def test_no_component_listens_beyond_loopback(tmp_path):
    made = plan(tmp_path)
    for argv in (made.apiserver(), made.controllers(), made.scheduler()):
        assert "--bind-address=127.0.0.1" in argv
    urls = [w.partition("=")[2] for w in made.etcd() if "-urls=" in w]
    assert len(urls) == 4
    assert all(url.startswith("http://127.0.0.1:") for url in urls)


def test_cpu_time_is_read_past_a_name_with_spaces_and_brackets():
    stat = "42 (a ) b) S 1 42 42 0 -1 4194560 1 0 0 0 311 89 0 0 20 0 9 0 77 0 0"
    assert cpu_ticks(stat) == 400


def test_free_ports_differ():
    assert len(set(free_ports(20))) == 20


def test_a_component_that_ends_is_told_with_the_end_of_its_log(tmp_path):
    (tmp_path / "false").symlink_to("/bin/sh")
    component = Component(
        ["false", "-c", "echo no such flag; exit 3"], binaries=tmp_path, log=tmp_path / "false.log"
    )
    try:
        with pytest.raises(Failure, match=r"(?s)false ended with 3.*no such flag"):
            component.await_ready("http://127.0.0.1:9/", timeout=20)
    finally:
        component.stop()


def test_a_stopped_component_is_gone(tmp_path):
    (tmp_path / "sleep").symlink_to("/bin/sleep")
    component = Component(["sleep", "60"], binaries=tmp_path, log=tmp_path / "sleep.log")
    assert component.cpu_seconds() < 1
    component.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(component.pid, 0)
