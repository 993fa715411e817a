import subprocess
import sys
from threading import Event, Thread

import pytest

from driver.core.errors import StateError
from driver.state.flock import FileLock

HOLD = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(fd, fcntl.LOCK_EX)
os.pwrite(fd, b"process 7 on plugin-old\\n", 0)
print("held", flush=True)
sys.stdin.read()
"""


class Clock:
    """Moves by a second at each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


class Waits(Event):
    """A stop event that is waited on without time passing."""

    def wait(self, _timeout=None):
        return self.is_set()


@pytest.fixture
def other(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def test_the_wait_ends_and_names_the_holder(tmp_path, other):
    lock = FileLock(tmp_path / "lock", clock=Clock())
    with (
        pytest.raises(StateError, match="held by process 7 on plugin-old for more than 5 s"),
        lock.held(timeout=5, stop=Waits()),
    ):
        pytest.fail("two processes hold the lock")


def test_a_killed_holder_lets_go(tmp_path, other):
    other.kill()
    other.wait()
    with FileLock(tmp_path / "lock", holder="me").held(timeout=5, stop=Event()):
        assert (tmp_path / "lock").read_text() == "me\n"


def test_a_stop_ends_the_wait(tmp_path, other):
    stop = Event()
    stop.set()
    with (
        pytest.raises(StateError, match="stopped while waiting"),
        FileLock(tmp_path / "lock").held(timeout=60, stop=stop),
    ):
        pytest.fail("two processes hold the lock")


def test_threads_of_one_process_exclude_each_other(tmp_path):
    lock, inside, most = FileLock(tmp_path / "lock"), [], []

    def work() -> None:
        with lock.held(timeout=30, stop=Event()):
            inside.append(1)
            most.append(len(inside))
            inside.pop()

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1, 1, 1, 1]


def test_the_lock_is_free_after_an_error_inside(tmp_path):
    lock = FileLock(tmp_path / "lock")
    with pytest.raises(ZeroDivisionError), lock.held(timeout=1, stop=Event()):
        raise ZeroDivisionError
    with lock.held(timeout=0, stop=Event()):
        assert (tmp_path / "lock").exists()


def test_a_lock_in_a_missing_folder_is_an_error_with_a_next_step(tmp_path):
    with (
        pytest.raises(StateError, match=r"cannot open the lock .*hostPath"),
        FileLock(tmp_path / "gone/lock").held(timeout=1, stop=Event()),
    ):
        pytest.fail("locked a file in no folder")
