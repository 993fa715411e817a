"""Wrong usage ends with 2 and names the argument; nothing is started for it."""

from pathlib import Path

import pytest

from hack.kind import cli, engine
from hack.kind.config import Wanted
from hack.kind.host import Host
from hack.kind.paths import State
from hack.kind.shell import Failure


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TESSERA_KIND_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("TESSERA_KIND_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["up", "--workers", "0"], "--workers"),
        (["up", "--workers", "two"], "--workers"),
        (["up", "--workers", "10"], "--workers"),
        (["load"], "IMAGE"),
        (["reboot"], "NODE"),
        (["exec"], "COMMAND"),
        (["build-image"], "TAG"),
        ([], "COMMAND"),
    ],
)
def test_a_wrong_argument_is_named(
    argv: list[str], named: str, state: Path, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as ended:
        cli.main(argv)
    assert ended.value.code == 2
    assert named in capsys.readouterr().err
    assert not (state / "state").exists()


def test_an_unknown_program_is_named_and_the_known_ones_are_listed(
    state: Path, capsys: pytest.CaptureFixture[str]
):
    assert cli.main(["binaries", "kube-apiserver", "kubelett"]) == 2
    said = capsys.readouterr().err
    assert "argument PROGRAM" in said
    assert "kubelett" in said
    assert "kubelet," in said


@pytest.mark.parametrize("argv", [["exec", "true"], ["load", "x"], ["reboot", "n"], ["env"]])
def test_what_needs_a_cluster_says_how_to_start_one(
    argv: list[str], state: Path, capsys: pytest.CaptureFixture[str]
):
    assert cli.main(argv) == 1
    assert "python3 -m hack.kind up" in capsys.readouterr().err


def test_status_of_nothing_is_down_and_no_failure(state: Path, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["status"]) == 1
    assert capsys.readouterr().out == "down\n"


def test_down_of_nothing_does_nothing(state: Path):
    assert cli.main(["down"]) == 0
    assert cli.main(["down", "--purge"]) == 0
    assert not (state / "state").exists()


def test_a_state_folder_too_deep_for_a_socket_is_refused_with_the_way_out(tmp_path: Path):
    deep = State(root=tmp_path / ("d" * 120))
    host = Host(cgroup_v1=True, may_raise_limits=True)
    with pytest.raises(Failure, match="TESSERA_KIND_STATE"):
        engine.settings(deep, host)


def test_the_runc_wrapper_is_used_only_where_the_capability_is_missing():
    state = State(root=Path("/s"))
    without = engine.settings(state, Host(cgroup_v1=True, may_raise_limits=False))
    assert without["default-runtime"] == "stripped"
    assert "runtimes" not in engine.settings(state, Host(cgroup_v1=True, may_raise_limits=True))


def test_kinds_names_for_workers_have_a_number_from_the_second_on():
    wanted = Wanted(workers=3, preset="h100x2", image="i", own=True)
    assert wanted.worker_names == ["tessera-worker", "tessera-worker2", "tessera-worker3"]
