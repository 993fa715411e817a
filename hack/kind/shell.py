"""Running other programs: a failure says which step, and what the program said last.

Why it exists: a build of half an hour must show that it lives, and one that fails must say why
without anybody looking for a log.

Must not know: what the programs do.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

TAIL = 20
Argv = Sequence[str | os.PathLike[str]]


class Failure(Exception):
    """Something outside our code failed. The text names the thing and the next step."""


def say(text: str) -> None:
    """Progress goes to stderr: stdout belongs to the answer of a command (`--json`, `env`)."""
    print(f"kind: {text}", file=sys.stderr, flush=True)


@contextmanager
def step(name: str) -> Iterator[None]:
    """Say that a step starts, and how long it took; add its name to a failure."""
    say(f"{name} ...")
    start = time.monotonic()
    try:
        yield
    except Failure as error:
        raise Failure(f"{name} failed: {error}") from error
    say(f"{name}: {time.monotonic() - start:.1f} s")


def tail(log: Path, lines: int = TAIL) -> str:
    """The last lines of a log, indented, for an error text."""
    if not log.exists():
        return f"  (no log at {log})"
    with log.open(errors="replace") as stream:
        last = stream.read().splitlines()[-lines:]
    return "\n".join(f"  {line}" for line in last)


def logged(argv: Argv, log: Path, *, env: Mapping[str, str] | None = None, **where: Path) -> None:
    """Run to the end with all output in `log`. `cwd=` may be given."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as stream:
        done = subprocess.run(
            argv,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env=env,
            cwd=where.get("cwd"),
        )
    if done.returncode:
        raise Failure(f"{_name(argv)} ended with {done.returncode}; {log} says:\n{tail(log)}")


def output(
    argv: Argv,
    *,
    env: Mapping[str, str] | None = None,
    stdin: IO[bytes] | None = None,
    text: str | None = None,
    timeout: float | None = 60,
) -> str:
    """What a short command prints. `text` is given to it as standard input."""
    source = {"input": text} if text is not None else {"stdin": stdin or subprocess.DEVNULL}
    try:
        done = subprocess.run(
            argv,
            check=False,
            capture_output=True,
            text=True,
            env=env,
            timeout=timeout,
            **source,
        )
    except FileNotFoundError as error:
        raise Failure(f"{argv[0]} is not installed; see hack/kind/apt.txt") from error
    except subprocess.TimeoutExpired as error:
        raise Failure(f"{_name(argv)} gave no answer within {timeout} s") from error
    if done.returncode:
        said = "\n".join(f"  {line}" for line in done.stderr.splitlines()[-TAIL:])
        raise Failure(f"{_name(argv)} ended with {done.returncode}:\n{said}")
    return done.stdout


def succeeds(argv: Argv, *, env: Mapping[str, str] | None = None, timeout: float = 20) -> bool:
    """Whether a probe command exits with 0 in time; a program that is absent does not."""
    try:
        done = subprocess.run(
            argv,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=env,
            timeout=timeout,
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def require(*programs: str) -> None:
    """Name every program of this machine that is missing, at once and before any long step."""
    if missing := [name for name in programs if not shutil.which(name)]:
        raise Failure(f"not installed: {', '.join(missing)}; install what hack/kind/apt.txt lists")


def _name(argv: Argv) -> str:
    words = [os.fspath(word) for word in argv]
    shown = " ".join([Path(words[0]).name, *words[1:]])
    return shown if len(shown) <= 120 else shown[:117] + "..."
