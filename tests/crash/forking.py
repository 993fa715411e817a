"""Runs a function in a child that may be killed: everything is imported already, so it is cheap.

The parent must have one thread and no NVML: a child inherits both.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Killed:
    """The child was killed, as it was asked to be."""


class ChildFailed(AssertionError):
    """The child's traceback."""


def forked(function: Callable[[], T]) -> T | Killed:
    """What the function returned in the child. ChildFailed where it raised, or ended otherwise."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if not pid:
        os.close(reading)
        _child(function, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return Killed()
    if status or not data:
        raise ChildFailed(f"the child ended with status {status}")
    well, value = pickle.loads(data)
    if not well:
        raise ChildFailed(value)
    result: T = value
    return result


def _child(function: Callable[[], T], writing: int) -> None:
    code = 1
    try:
        gc.disable()
        try:
            told = (True, function())
        except BaseException:  # noqa: BLE001 - everything is told to the parent
            told = (False, traceback.format_exc())  # type: ignore[assignment]
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(told, pipe)
        code = 0
    finally:
        os._exit(code)


def started(function: Callable[[int], None]) -> tuple[int, int]:
    """The same, without waiting; the function writes lines to the descriptor that it is given.
    The child's pid, and the pipe.
    """
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if not pid:
        os.close(reading)
        code = 1
        try:
            function(writing)
            code = 0
        except BaseException:  # noqa: BLE001 - shown, and told by the exit code
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    return pid, reading


def collected(pid: int, reading: int) -> tuple[bool, str]:
    """Whether it was killed, and the lines. ChildFailed where it ended otherwise."""
    with os.fdopen(reading, encoding="utf-8") as pipe:
        lines = pipe.read()
    _, status = os.waitpid(pid, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    if status and not killed:
        raise ChildFailed(f"the child ended with status {status}")
    return killed, lines
