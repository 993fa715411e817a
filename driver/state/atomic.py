"""Files that are replaced as a whole: a reader, or a crash, sees the old content or the new one.

A write goes: temp file in the same folder, data, fsync, rename, fsync of the folder. Without
`durable` both fsyncs are left out: still all or nothing for readers and for a killed process, but a
power cut may take the file away.

While it writes, a writer holds a shared lock on the folder. So whoever gets the exclusive lock
knows that no writer is alive, in any PID namespace, and that every temp file is a dead one's.

Must not know what is in the files.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from driver.state.failures import state_error
from driver.state.folder_view import Stamp, stamp_of

_TEMP_PREFIX: Final = ".tessera-"
_TEMP_SUFFIX: Final = ".tmp"


class Files:
    """The system calls of a write, one method each, so that a test can let each of them fail."""

    def open_folder(self, path: Path) -> int:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def lock(self, fd: int, how: int) -> None:
        fcntl.flock(fd, how)

    def create(self, path: Path) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(path, flags, 0o600)

    def write(self, fd: int, data: memoryview) -> int:
        return os.write(fd, data)

    def chmod(self, fd: int, mode: int) -> None:
        os.fchmod(fd, mode)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def close(self, fd: int) -> None:
        os.close(fd)

    def rename(self, source: Path, target: Path) -> None:
        os.replace(source, target)  # noqa: PTH105 - the system call, not a helper around it

    def unlink(self, path: Path) -> None:
        os.unlink(path)  # noqa: PTH108


class AtomicFolder:
    """One folder whose files are replaced whole. Safe for several threads and processes."""

    def __init__(self, path: Path, *, durable: bool, mode: int, files: Files | None = None) -> None:
        self.path = path
        self._durable = durable
        self._mode = mode
        self._files = files or Files()

    def write(self, name: str, data: bytes) -> Stamp:
        """The new file's stamp. After a failure of the last step, the folder's fsync, the new
        content may be there.
        """
        target = self.path / name
        try:
            with self._open(fcntl.LOCK_SH) as folder:
                stamp = self._replace(target, data)
                if self._durable:
                    self._files.fsync(folder)
        except OSError as error:
            raise state_error("cannot write", target, error) from error
        return stamp

    def remove(self, name: str, *, sync_missing: bool = False) -> bool:
        """Whether it was there. `sync_missing`: finish a removal that failed half-way before."""
        target = self.path / name
        try:
            with self._open(fcntl.LOCK_SH) as folder:
                there = self._unlink(target)
                if self._durable and (there or sync_missing):
                    self._files.fsync(folder)
        except OSError as error:
            raise state_error("cannot remove", target, error) from error
        return there

    def sweep(self) -> int:
        """Remove temp files that dead writers left; how many. Nothing while another one writes."""
        removed = 0
        try:
            with self.alone() as alone:
                if alone:
                    for path in self.path.glob(f"{_TEMP_PREFIX}*{_TEMP_SUFFIX}"):
                        removed += self._unlink(path)
        except OSError as error:
            raise state_error("cannot clean", self.path, error) from error
        return removed

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Whether nobody writes until the end of the block, in this process or another. OSError."""
        with ExitStack() as stack:
            try:
                stack.enter_context(self._open(fcntl.LOCK_EX | fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
                return
            yield True

    def rewrite(self, name: str, data: bytes) -> None:
        """As `write`, by who is `alone`. OSError."""
        self._replace(self.path / name, data)
        if self._durable:
            folder = self._files.open_folder(self.path)
            try:
                self._files.fsync(folder)
            finally:
                self._files.close(folder)

    def _replace(self, target: Path, data: bytes) -> Stamp:
        temp = target.with_name(f"{_TEMP_PREFIX}{secrets.token_hex(8)}{_TEMP_SUFFIX}")
        fd = self._files.create(temp)
        try:
            try:
                self._fill(fd, data)
                stamp = stamp_of(os.fstat(fd))
            finally:
                self._files.close(fd)
            self._files.rename(temp, target)
        except BaseException:
            with suppress(OSError):  # the first failure is the one to tell; sweep() takes the rest
                self._unlink(temp)
            raise
        return stamp

    def _fill(self, fd: int, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            written = self._files.write(fd, rest)
            if written == 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            rest = rest[written:]
        self._files.chmod(fd, self._mode)  # the umask does not decide who may read
        if self._durable:
            self._files.fsync(fd)

    def _unlink(self, path: Path) -> bool:
        try:
            self._files.unlink(path)
        except FileNotFoundError:
            return False
        return True

    @contextmanager
    def _open(self, how: int) -> Iterator[int]:
        fd = self._files.open_folder(self.path)
        try:
            self._files.lock(fd, how)
            yield fd
        finally:
            self._files.close(fd)  # which lets go of the lock
