"""From how a probe's process ended to an outcome. Trusts nothing that the process wrote."""

from __future__ import annotations

import json
import signal
from typing import Final

from driver.core.health.probe import (
    CallFailed,
    Crashed,
    LibraryUnusable,
    Outcome,
    Passed,
    WrongResult,
)
from driver.cuda.process import MOST_OUTPUT, Ended

_LONGEST: Final = 500
"""Characters of a text that reaches evidence, events and logs."""


def outcome_of(ended: Ended) -> Outcome:
    """`Crashed` for every end that is not one of the documented answers."""
    if ended.overflowed:
        return Crashed(detail=f"the probe wrote more than {MOST_OUTPUT} bytes")
    if ended.status != 0:
        return Crashed(detail=_with_errors(f"the probe {_status(ended.status)}", ended))
    try:
        answer = json.loads(ended.output)
        return _answer(answer)
    except (ValueError, KeyError, TypeError, RecursionError):
        shown = _plain(ended.output[:80])
        return Crashed(detail=_with_errors(f"the probe's answer is no answer: {shown!r}", ended))


def _answer(answer: dict[str, object]) -> Outcome:
    match answer["result"]:
        case "passed":
            return Passed(seconds=_seconds(answer))
        case "wrong-result":
            return WrongResult(seconds=_seconds(answer), detail=_text(answer["detail"]))
        case "library":
            return LibraryUnusable(detail=_text(answer["detail"]))
        case "error":
            code = answer["code"]
            if not isinstance(code, int) or isinstance(code, bool):
                raise TypeError(code)
            return CallFailed(
                call=_text(answer["call"]),
                code=code,
                name=_text(answer["name"]),
                seconds=_seconds(answer),
            )
        case other:
            raise ValueError(other)


def _seconds(answer: dict[str, object]) -> float:
    seconds = answer["seconds"]
    if not isinstance(seconds, int | float) or not 0 <= seconds < float("inf"):
        raise TypeError(seconds)
    return float(seconds)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value[:_LONGEST]


def _status(status: int) -> str:
    if status > 0:
        return f"ended with exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = str(-status)
    return f"was ended by signal {name}"


def _with_errors(text: str, ended: Ended) -> str:
    """The last line on standard error is the message of a Python error, or of the loader."""
    lines = _plain(ended.errors).strip().splitlines()
    return f"{text}: {lines[-1][:_LONGEST]}" if lines else text


def _plain(raw: bytes) -> str:
    return raw.decode(errors="backslashreplace")
