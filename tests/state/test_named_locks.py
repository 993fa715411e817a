"""Names between threads, between objects as if in two processes, and between real processes."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from driver.core.errors import StateError
from driver.state.named_locks import NamedLocks, offset
from driver.state.thread_locks import ThreadLocks

OTHER = """
import sys
from pathlib import Path
from driver.state.named_locks import NamedLocks
locks = NamedLocks(Path(sys.argv[1]))
for name in sys.argv[2:]:
    assert not locks.take(name, by="other", patience=10)
print("held", flush=True)
sys.stdin.readline()
for name in sys.argv[2:]:
    locks.give(name)
print("free", flush=True)
sys.stdin.readline()
"""

COUNT = """
import sys
from pathlib import Path
from driver.state.named_locks import NamedLocks
locks, counter = NamedLocks(Path(sys.argv[1]), retry=0.001), Path(sys.argv[2])
for turn in range(100):
    assert not locks.take("counter", by="other", patience=30)
    counter.write_text(str(int(counter.read_text()) + 1))
    locks.give("counter")
"""


@contextmanager
def other(path: Path, *names: str) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds `names`."""
    with subprocess.Popen(
        [sys.executable, "-c", OTHER, str(path), *names],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"held\n"
            yield process
        finally:
            process.kill()


def test_a_name_that_another_process_has_is_not_had_and_others_are(tmp_path):
    locks = NamedLocks(tmp_path / "locks")
    with other(tmp_path / "locks", "claim a"):
        assert "another plugin process" in locks.take("claim a", by="me", patience=0.1)
        assert not locks.take("claim b", by="me", patience=0)
    assert (tmp_path / "locks").read_bytes() == b""


def test_a_name_given_back_by_another_process_is_had_by_who_waits(tmp_path):
    locks = NamedLocks(tmp_path / "locks")
    with other(tmp_path / "locks", "claim a") as process, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(locks.take, "claim a", by="me", patience=30)
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert waiting.result(30) == ""


def test_the_names_of_a_killed_process_are_free(tmp_path):
    locks = NamedLocks(tmp_path / "locks")
    with other(tmp_path / "locks", "claim a", "gpu b") as process:
        process.kill()
        process.wait()
        for name in ("claim a", "gpu b"):
            assert not locks.take(name, by="me", patience=0)


def test_two_processes_with_threads_never_do_the_same_thing_at_once(tmp_path):
    (tmp_path / "counter").write_text("0")
    command = [sys.executable, "-c", COUNT, str(tmp_path / "locks"), str(tmp_path / "counter")]
    process = subprocess.Popen(command)
    locks = NamedLocks(tmp_path / "locks", retry=0.001)

    def work(_: int) -> None:
        for _ in range(50):
            assert not locks.take("counter", by="me", patience=30)
            was = int((tmp_path / "counter").read_text())
            (tmp_path / "counter").write_text(str(was + 1))
            locks.give("counter")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(2)))
    assert process.wait(30) == 0
    assert (tmp_path / "counter").read_text() == "200"


@pytest.mark.parametrize("between", ["threads", "threads of a process with a file"])
def test_whoever_waits_between_threads_is_woken_and_told_who_has_it(tmp_path, between):
    locks = ThreadLocks() if between == "threads" else NamedLocks(tmp_path / "locks", retry=60)
    assert not locks.take("a", by="first", patience=0)
    assert locks.take("a", by="second", patience=0.01) == "first"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(locks.take, "a", by="second", patience=30)
        locks.give("a")
        assert waiting.result(30) == ""
    locks.give("a")


def test_what_could_not_be_had_in_the_file_is_free_between_threads(tmp_path):
    one, two = NamedLocks(tmp_path / "locks"), NamedLocks(tmp_path / "locks")
    assert not one.take("a", by="one", patience=0)
    for _ in range(2):
        assert "another plugin process" in two.take("a", by="two", patience=0)
    one.give("a")
    assert not two.take("a", by="two", patience=0)


def test_a_file_that_cannot_be_made_is_an_error_with_a_next_step_each_time(tmp_path):
    locks = NamedLocks(tmp_path / "gone" / "locks")
    for _ in range(2):
        with pytest.raises(StateError, match=r"cannot open the lock .*hostPath"):
            locks.take("a", by="me", patience=0)
    (tmp_path / "gone").mkdir()
    assert not locks.take("a", by="me", patience=0)


def test_many_names_have_many_places():
    places = {offset(f"claim {n}") for n in range(10_000)}
    assert len(places) == 10_000
    assert all(0 <= place < 2**62 for place in places)


def test_nothing_is_kept_of_names_that_nobody_holds(tmp_path):
    locks = NamedLocks(tmp_path / "locks")
    for n in range(100):
        assert not locks.take(f"claim {n}", by="me", patience=0)
        locks.give(f"claim {n}")
    assert not locks._threads._holders
