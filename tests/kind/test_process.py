"""A recorded process is believed only if it is the same one."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hack.kind import cgroups
from hack.kind.process import Identity, daemon, end
from hack.kind.shell import Failure

NOTIFY = """
import os, signal, socket
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
    out.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
signal.pause()
"""


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "60"])


def test_a_living_process_is_itself_after_save_and_load(tmp_path: Path):
    with sleeper() as child:
        who = Identity.of(child.pid)
        assert who is not None
        who.save(tmp_path / "record")
        assert Identity.load(tmp_path / "record") == who
        assert who.alive()
        assert end(who, signal.SIGKILL, timeout=5)
        assert not who.alive(), "killed and not yet reaped is dead all the same"


def fake_proc(root: Path, *, pid: int, started: int, boot: str, name: str = "x") -> Path:
    (root / str(pid)).mkdir(parents=True, exist_ok=True)
    before = " ".join(["1"] * 18)
    (root / str(pid) / "stat").write_text(f"{pid} ({name}) S {before} {started} 0 0\n")
    (root / "sys/kernel/random").mkdir(parents=True, exist_ok=True)
    (root / "sys/kernel/random/boot_id").write_text(f"{boot}\n")
    return root


@pytest.mark.parametrize(
    ("started", "boot", "alive"),
    [
        pytest.param(500, "b1", True, id="the same process"),
        pytest.param(501, "b1", False, id="pid handed out again"),
        pytest.param(500, "b2", False, id="machine restarted, same tick by chance"),
    ],
)
def test_a_reused_pid_is_not_believed(tmp_path: Path, started: int, boot: str, alive: bool):
    who = Identity(pid=77, started=500, boot="b1")
    proc = fake_proc(tmp_path, pid=77, started=started, boot=boot, name="a) S (b")
    assert who.alive(proc=proc) is alive


def test_another_process_with_the_pid_is_never_signalled():
    with sleeper() as child:
        real = Identity.of(child.pid)
        assert real is not None
        other = Identity(pid=real.pid, started=real.started - 1, boot=real.boot)
        assert end(other, signal.SIGKILL, timeout=1), "as good as ended"
        assert child.poll() is None
        child.kill()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', json.dumps({"pid": None})])
def test_a_damaged_record_is_no_record(tmp_path: Path, text: str):
    (tmp_path / "record").write_text(text)
    assert Identity.load(tmp_path / "record") is None


def test_a_daemon_is_used_when_it_says_it_is_ready_and_outlives_the_block(tmp_path: Path):
    argv = [sys.executable, "-c", NOTIFY]
    with daemon(argv, tmp_path / "log", env=os.environ, timeout=10) as child:
        assert child.poll() is None
    assert child.poll() is None
    child.kill()
    child.wait()


def test_a_daemon_that_ends_instead_is_named_with_its_last_words(tmp_path: Path):
    argv = ["sh", "-c", "echo no such storage driver >&2; exit 3"]
    with pytest.raises(Failure, match=r"(?s)ended with 3.*no such storage driver"):  # noqa: SIM117
        with daemon(argv, tmp_path / "log", env=os.environ, timeout=10):
            pytest.fail("it was never ready")


def test_a_daemon_that_never_gets_ready_is_killed(tmp_path: Path):
    begin = time.monotonic()
    with pytest.raises(Failure, match="not ready within"):  # noqa: SIM117
        with daemon(["sleep", "60"], tmp_path / "log", env=os.environ, timeout=0.2):
            pytest.fail("it was never ready")
    assert time.monotonic() - begin < 5


def test_only_the_named_group_is_removed_from_every_hierarchy(tmp_path: Path):
    for path in ("cpu/ours/docker/a", "memory/ours", "cpu/other", "ours/x"):
        (tmp_path / path).mkdir(parents=True)
    assert cgroups.remove("ours", root=tmp_path) == []
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")) == [
        "cpu", "cpu/other", "memory",
    ]  # fmt: skip


def test_a_group_in_use_is_reported(tmp_path: Path):
    (tmp_path / "cpu/ours").mkdir(parents=True)
    (tmp_path / "cpu/ours/tasks").write_text("1")
    assert cgroups.remove("ours", root=tmp_path) == [tmp_path / "cpu/ours"]
