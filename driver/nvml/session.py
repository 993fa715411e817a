"""Who is inside the NVML library: many threads at once, and nobody when it is unloaded.

Why it exists: making a partition takes hundreds of milliseconds, and other GPUs need not wait for
it; so there is no lock around a call. But the library comes from the driver root, not from our
image: another version may be put in its place while we run, and the loader answers a path that it
has mapped with the old file, whatever lies there now. So the library is unmapped to be let go of,
which no thread that is inside would survive.

Somebody who resets a GPU needs us out of it: `release` closes, and lets nobody in for a while.

The order: who enters opens the library if it is not open; after `close`, or an answer that the
driver is not loaded, nobody enters, and the last who leaves shuts down and unloads. Opening and
letting go may hang in the driver, so no lock is held meanwhile: one thread does it, and the others
wait for as long as their patience lasts.

Must not know what is asked.
"""

from __future__ import annotations

import _ctypes
import ctypes
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pynvml

from driver.core.errors import DriverNotLoaded, InUse, LibraryMissing, NvmlError, Released
from driver.nvml.calls import call, counted
from driver.nvml.handles import Handles

log = logging.getLogger(__name__)


class Session:
    """`handles` are those of the open library; closing drops them."""

    def __init__(self, locate: Callable[[], Path], *, patience: float = 30.0) -> None:
        """`locate`: the file to load, asked at each opening. `patience`: seconds that `close`
        waits for calls to return, and a call for an opening or a closing to end.
        """
        self.handles = Handles()
        self.openings = 0
        """How often it was opened: what was made in another opening is gone."""
        self._locate = locate
        self._patience = patience
        self._changed = threading.Condition()
        self._inside = 0
        self._open = False
        self._closing = False
        self._turning = ""
        """What one thread does to the library now, and which; empty: nothing."""
        self._left_at = 0.0
        self._released_until = 0.0
        self._released_text = ""

    @property
    def held(self) -> bool:
        """Whether the library, and with it the driver, is open."""
        with self._changed:
            return self._open or self._inside > 0 or bool(self._turning)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """NVML may be called in this block. Not to be nested: a closing in between would wait for
        the outer block, and the inner one for the closing.
        """
        self._enter()
        broken = False
        try:
            yield
        except NvmlError as error:
            # It may be why a call could not take back what it had made.
            broken = any(isinstance(e, DriverNotLoaded) for e in (error, error.__cause__))
            raise
        finally:
            self._leave(broken=broken)

    def release(self, seconds: float) -> None:
        """Close, and let nobody in for `seconds`: it ends by itself, whoever forgets `resume`."""
        with self._changed:
            self._released_until = time.monotonic() + seconds
            self._released_text = datetime.fromtimestamp(time.time() + seconds, UTC).strftime(
                "%H:%M:%SZ"
            )
        self.close()

    def resume(self) -> None:
        with self._changed:
            self._released_until = 0.0

    def close(self) -> None:
        """Let go of the library. A call that hangs is waited for as long as `patience` says; after
        that the library is let go of when the call returns.
        """
        with self._changed:
            self._closing = True
            if self._inside or self._turning:
                if not self._changed.wait_for(lambda: not self._closing, self._patience):
                    log.warning(
                        "NVML is still inside a call, is let go of when that returns; see dmesg",
                        extra={"calls": self._inside, "waited_s": self._patience},
                    )
                return
            self._begin("let go of")
        self._forget()

    def close_idle(self, seconds: float) -> float:
        """Let go of the library if nobody was inside for so long; seconds until that may be so."""
        with self._changed:
            rest = self._left_at + seconds - time.monotonic()
            if self._inside or self._turning or not self._open:
                return seconds
            if rest > 0:
                return rest
            self._begin("let go of")
        self._forget()
        return seconds

    def _enter(self) -> None:
        with self._changed:
            self._refuse_while_released()
            if not self._changed.wait_for(self._settled, self._patience):
                raise InUse(self._hangs(), call="nvmlShutdown", code=pynvml.NVML_ERROR_IN_USE)
            self._refuse_while_released()  # the closing may have been for that
            if self._open:
                self._inside += 1
                return
            self._begin("opened")
        self._load()

    def _leave(self, *, broken: bool) -> None:
        with self._changed:
            self._inside -= 1
            self._left_at = time.monotonic()
            self._closing |= broken
            if self._inside or not self._closing:
                return
            self._begin("let go of")
        self._forget()

    def _refuse_while_released(self) -> None:
        if self._released_until > time.monotonic():
            # The same words each time: what is told again and again is no news.
            raise Released(
                f"NVML is let go of until {self._released_text}, so that a GPU can be reset or cut"
                " by others; wait, or end that window (tessera release --end)",
                call="nvmlInit",
                code=pynvml.NVML_ERROR_IN_USE,
            )

    # -- with the lock held

    def _settled(self) -> bool:
        return not self._closing and not self._turning

    def _begin(self, what: str) -> None:
        """From here on nobody enters, until `_done`. Nobody is inside."""
        self._turning = f"{what} by {threading.current_thread().name}"

    def _done(self, *, opened: bool) -> None:
        self._open, self._turning = opened, ""
        if not opened:
            self._closing = False
        self._changed.notify_all()

    def _hangs(self) -> str:
        if self._turning:
            return (
                f"NVML is being {self._turning}, which has not returned for {self._patience:g} s;"
                " the driver hangs, see dmesg"
            )
        return (
            f"NVML is being let go of, but {self._inside} of its calls have not returned"
            f" for {self._patience:g} s; a GPU hangs, see dmesg"
        )

    # -- without the lock, between `_begin` and `_done`

    def _load(self) -> None:
        """Open, and be inside. What was to be closed meanwhile is let go of by who leaves."""
        opened = False
        try:
            load(self._locate())
            call("nvmlInit")
            opened = True
        finally:
            if not opened:
                self.handles.clear()
                unload()
            with self._changed:
                if opened:
                    self.openings += 1
                    self._inside += 1
                self._done(opened=opened)

    def _forget(self) -> None:
        """Shut down and unload: the next opening loads what is there then."""
        self.handles.clear()
        try:
            if self._open:
                _quietly(pynvml.nvmlShutdown)
            unload()
        finally:
            with self._changed:
                self._done(opened=False)


def load(path: Path) -> None:
    """Make pynvml use exactly this file: by itself it would search the image's loader path."""
    unload()
    try:
        pynvml.nvmlLib = ctypes.CDLL(str(path))
    except OSError as error:
        raise counted(
            LibraryMissing(
                f"{path} cannot be loaded: {error}",
                call="dlopen",
                code=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
            )
        ) from error


def unload() -> None:
    """Safe only while no thread is inside the library."""
    with pynvml.libLoadLock:
        library, pynvml.nvmlLib = pynvml.nvmlLib, None
        pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 - holds pointers into it
    if library is not None:
        _ctypes.dlclose(library._handle)  # noqa: SLF001 - ctypes never closes by itself


def _quietly(shutdown: Callable[[], object]) -> None:
    """A library that is already gone cannot be shut down, and need not be."""
    try:
        shutdown()
    except pynvml.NVMLError:
        return
