"""A real engine of ours, and what is left after every way in which it can end: nothing.

Needs root and Debian's engine. Starts its own one, beside any cluster that is up.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.kind import cgroups, engine
from hack.kind.archive import ImageConfig, write_small_image
from hack.kind.engine import Engine
from hack.kind.host import Host
from hack.kind.paths import State
from hack.kind.process import Identity, children

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
HOST = Host.detect()
IMAGE = "tessera.local/sleep:1"


@pytest.fixture(scope="module", autouse=True)
def _able() -> None:
    if os.geteuid() or not Path("/usr/sbin/dockerd").exists():
        pytest.skip("needs root and the packages of hack/kind/apt.txt")


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    made = State(root=tmp_path / "s")
    yield made
    engine.stop(made)


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("image") / "image.tar"
    config = ImageConfig(entrypoint=("/bin/busybox",), command=("sleep", "300"))
    write_small_image(out, IMAGE, {"/bin/busybox": Path("/bin/busybox")}, config)
    return out


def start_with_container(state: State, archive: Path) -> tuple[Engine, Identity]:
    made = engine.start(state, HOST)
    made.load_archive(IMAGE, archive)
    mounted = state.root / "mounted"
    mounted.mkdir()
    volume = f"{mounted}:/mounted"
    flags = ("--privileged", "--cgroupns=private", "--restart=on-failure:1", "-v", volume)
    made.docker("run", "-d", *flags, IMAGE)
    who = Identity.load(state.engine_record)
    assert who is not None
    assert cgroups.tops(state.cgroup), "the container is in a group of ours"
    return made, who


def outside() -> tuple[list[str], list[str]]:
    """What another engine's rest would show in: interfaces and /run."""
    names = (
        sorted(p.name for p in Path(folder).iterdir()) for folder in ("/sys/class/net", "/run")
    )
    return next(names), next(names)


def namespaces(pid: int) -> set[str]:
    return {str(Path(f"/proc/{pid}/ns/{kind}").readlink()) for kind in ("net", "mnt", "pid")}


def members(spaces: set[str]) -> list[int]:
    """Living processes in any of these namespaces."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            alive = Identity.of(int(path.name)) is not None
            if alive and namespaces(int(path.name)) & spaces:
                found.append(int(path.name))
        # Gone meanwhile; or not to be looked at, as the machine's first process may be: not ours.
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def await_end(who: Identity) -> None:
    deadline = time.monotonic() + 20
    while who.alive() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not who.alive()


def test_stop_leaves_no_process_mount_group_interface_or_file_outside(state: State, archive: Path):
    before = outside()
    _, who = start_with_container(state, archive)
    inner = namespaces(children(who.pid)[0])
    own = {str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in ("net", "mnt", "pid")}
    assert not inner & own
    assert len(members(inner)) > 3
    assert outside() == before
    engine.stop(state)
    assert members(inner) == []
    assert cgroups.tops(state.cgroup) == []
    assert str(state.root) not in Path("/proc/self/mountinfo").read_text()
    assert outside() == before
    assert not state.engine_record.exists()
    engine.stop(state)


@pytest.mark.parametrize("victim", ["outermost", "init", "dockerd"])
def test_after_kill_9_nothing_lives_on_and_the_next_start_is_clean(
    state: State, archive: Path, victim: str
):
    _, who = start_with_container(state, archive)
    init = children(who.pid)[0]
    # By identity, not by namespace: the kernel gives the next engine the same numbers again.
    before = [one for pid in members(namespaces(init)) if (one := Identity.of(pid))]
    assert len(before) > 3
    pid = {"outermost": who.pid, "init": init, "dockerd": children(init)[0]}[victim]
    os.kill(pid, signal.SIGKILL)
    await_end(who)
    assert engine.own_engine(state) is None
    (state.root / "mounted").rmdir()
    again = engine.start(state, HOST)
    assert [one for one in before if one.alive()] == []
    assert again.docker("ps", "-aq") == ""
    assert not (state.root / "mounted").exists(), "no container was restarted meanwhile"
    assert again.has_image(IMAGE), "images are kept, so the next cluster starts fast"
    assert engine.own_engine(state) == again


def test_a_record_whose_pid_now_belongs_to_somebody_else_is_ignored_and_they_are_left_alone(
    state: State,
):
    with subprocess.Popen(["sleep", "60"]) as bystander:
        now = Identity.of(bystander.pid)
        assert now is not None
        state.engine.mkdir(parents=True)
        (state.engine / "docker.sock").touch()
        Identity(pid=now.pid, started=now.started - 7, boot=now.boot).save(state.engine_record)
        assert engine.own_engine(state) is None
        engine.start(state, HOST)
        assert bystander.poll() is None
        bystander.kill()


def test_groups_of_an_engine_that_is_gone_are_removed_at_the_next_start(state: State):
    hierarchy = Path("/sys/fs/cgroup/pids" if HOST.cgroup_v1 else "/sys/fs/cgroup")
    left = hierarchy / state.cgroup / "0123" / "kubelet"
    left.mkdir(parents=True)
    engine.start(state, HOST)
    assert not left.exists()
