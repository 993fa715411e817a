import errno
import fcntl
import os
from pathlib import Path

import pytest

from driver.core.errors import StateError
from driver.state.atomic import AtomicFolder
from tests.state.faults import Killed, ScriptedFiles, names

OLD, NEW = b"old content\n", b"the new content, longer\n"
DURABLE_WRITE = [
    "open_folder",
    "lock",
    "create",
    "write",
    "chmod",
    "fsync",
    "close",
    "rename",
    "fsync",
    "close",
]
RENAMED = DURABLE_WRITE.index("rename") + 1
"""From this step on the new content is in place."""


def folder(path: Path, files: ScriptedFiles | None = None, **options: object) -> AtomicFolder:
    return AtomicFolder(path, **{"durable": True, "mode": 0o600, "files": files, **options})  # type: ignore[arg-type]


def test_a_durable_write_syncs_the_data_before_the_rename_and_the_folder_after(tmp_path):
    files = ScriptedFiles()
    folder(tmp_path, files).write("a", NEW)
    assert files.calls == DURABLE_WRITE
    assert (tmp_path / "a").read_bytes() == NEW


def test_a_write_that_need_not_be_durable_syncs_nothing(tmp_path):
    files = ScriptedFiles()
    folder(tmp_path, files, durable=False).write("a", NEW)
    assert files.count("fsync") == 0
    assert (tmp_path / "a").read_bytes() == NEW


@pytest.mark.parametrize(
    ("number", "word"),
    [
        (errno.ENOSPC, "free space"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "root"),
        (errno.EIO, "dmesg"),
        (errno.ELOOP, "kernel log"),
    ],
)
@pytest.mark.parametrize("step", range(len(DURABLE_WRITE)))
def test_a_failed_step_leaves_whole_content_and_no_temp_file(tmp_path, step, number, word):
    (tmp_path / "a").write_bytes(OLD)
    files = ScriptedFiles(fail_at=step, error=OSError(number, os.strerror(number)))
    with pytest.raises(StateError) as caught:
        folder(tmp_path, files).write("a", NEW)
    assert (tmp_path / "a").read_bytes() == (OLD if step < RENAMED else NEW)
    assert names(tmp_path) == ["a"]
    assert str(tmp_path / "a") in str(caught.value)
    assert os.strerror(number) in str(caught.value)
    assert word in str(caught.value)


def test_a_temp_file_that_cannot_be_removed_does_not_hide_the_first_failure(tmp_path):
    class Broken(ScriptedFiles):
        def unlink(self, _path):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    files = Broken(fail_at=3, error=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    with pytest.raises(StateError, match="No space left"):
        folder(tmp_path, files).write("a", NEW)
    assert folder(tmp_path).sweep() == 1


@pytest.mark.parametrize("step", range(len(DURABLE_WRITE)))
def test_a_process_killed_at_any_step_leaves_whole_content_and_the_next_start_cleans_up(
    tmp_path, step
):
    (tmp_path / "a").write_bytes(OLD)
    files = ScriptedFiles(fail_at=step, error=Killed())
    with pytest.raises(Killed):
        folder(tmp_path, files).write("a", NEW)
    files.release()
    assert (tmp_path / "a").read_bytes() == (OLD if step < RENAMED else NEW)
    folder(tmp_path).sweep()
    assert names(tmp_path) == ["a"]


def test_short_writes_are_continued(tmp_path):
    files = ScriptedFiles(torn=5)
    folder(tmp_path, files).write("a", NEW)
    assert (tmp_path / "a").read_bytes() == NEW
    assert files.count("write") == -(-len(NEW) // 5)


def test_a_device_that_takes_no_bytes_is_an_error_not_a_loop(tmp_path):
    with pytest.raises(StateError, match="Input/output error"):
        folder(tmp_path, ScriptedFiles(torn=0)).write("a", NEW)
    assert names(tmp_path) == []


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_the_mode_is_what_was_asked_for_whatever_the_umask(tmp_path, mode):
    old = os.umask(0o077 if mode == 0o644 else 0)
    try:
        folder(tmp_path, mode=mode).write("a", NEW)
    finally:
        os.umask(old)
    assert (tmp_path / "a").stat().st_mode & 0o777 == mode


def test_temp_files_are_left_alone_while_any_writer_lives(tmp_path):
    temp = tmp_path / ".tessera-0123.tmp"
    temp.touch()
    writer = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(writer, fcntl.LOCK_SH)
    assert folder(tmp_path).sweep() == 0
    assert temp.exists()
    os.close(writer)
    assert folder(tmp_path).sweep() == 1
    assert not temp.exists()


def test_sweeping_touches_no_file_of_another_name(tmp_path):
    for name in ("a.json", ".hidden.tmp", "tessera-1.tmp"):
        (tmp_path / name).touch()
    assert folder(tmp_path).sweep() == 0


def test_removing_says_whether_it_was_there_and_syncs_only_then(tmp_path):
    (tmp_path / "a").touch()
    files = ScriptedFiles()
    assert folder(tmp_path, files).remove("a")
    assert files.count("fsync") == 1
    assert not folder(tmp_path, files).remove("a")
    assert files.count("fsync") == 1


def test_a_folder_that_is_gone_is_an_error_with_a_next_step(tmp_path):
    gone = folder(tmp_path / "gone")
    with pytest.raises(StateError, match="hostPath"):
        gone.write("a", NEW)
    with pytest.raises(StateError, match="cannot clean"):
        gone.sweep()
