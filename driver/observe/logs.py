"""Log lines: an event phrase and key/value pairs, as one JSON object or one line of text.

    log = Log(__name__)
    log.info("slice written", slice=name, reason="new device")

Modules that only know the standard library pass `extra={...}`; both end up the same.

Levels: `error`, somebody must act, the text says on what; `warning`, it failed and is tried again,
or something was refused; `info`, something changed, or a call of the kubelet was served;
`debug`, what was looked at and found unchanged. Whoever handles an error logs it, once.

Every line of one call or reconciliation carries the same `op_id`. Secrets are never passed to a
log; as a second line of defence, fields named like one and bearer tokens are blanked here.

Must not know the events.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO

from driver.core.ids import OpId
from driver.ports.kubelet import OP_ID, new_op_id

Format = Literal["json", "text"]
Level = Literal["debug", "info", "warning", "error"]

_STANDARD: Final = frozenset(
    (*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName", "fields", "op_id")
)
_SECRET_NAME: Final = re.compile(
    r"token|password|passwd|secret|authorization|credential", re.IGNORECASE
)
_BEARER: Final = re.compile(r"(?i)\bbearer\s+[^\s\"',]+")
_BLANK: Final = "[redacted]"
_PLAIN: Final = re.compile(r"[^\s\"=\\]+")


class Log:
    """A logger whose keyword arguments are fields; no name of a field can clash with logging's."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, **fields: object) -> None:
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._log(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """With the traceback: for what nobody expected, at the top of a thread."""
        self._log(logging.ERROR, event, fields, traceback=True)

    def _log(
        self, level: int, event: str, fields: Mapping[str, object], *, traceback: bool = False
    ) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(
                level, "%s", event, extra={"fields": fields}, exc_info=traceback, stacklevel=3
            )


@contextmanager
def operation() -> Iterator[OpId]:
    """One reconciliation: its lines share an id, as those of a kubelet call do."""
    op_id = new_op_id()
    token = OP_ID.set(op_id)
    try:
        yield op_id
    finally:
        OP_ID.reset(token)


def setup(*, level: Level, form: Format, stream: TextIO | None = None) -> None:
    """All loggers of the process, third parties' included; called once, before any thread."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    logging.captureWarnings(capture=True)


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(_line(self, record), default=str, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """`TIME LEVEL LOGGER EVENT key=value ...`; a value never breaks the line."""

    def format(self, record: logging.LogRecord) -> str:
        line = _line(self, record)
        head = [str(line.pop(key)) for key in ("time", "level", "logger")]
        event = str(line.pop("event")).replace("\n", "\\n").replace("\r", "\\r")
        pairs = [f"{key}={_text(value)}" for key, value in line.items()]
        return " ".join((*head, event, *pairs))


def _line(formatter: logging.Formatter, record: logging.LogRecord) -> dict[str, Any]:
    line: dict[str, Any] = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "event": _clean(record.getMessage()),
    }
    op_id = record.__dict__.get("op_id") or OP_ID.get(None)
    if op_id:
        line["op_id"] = op_id
    extra = {k: v for k, v in record.__dict__.items() if k not in _STANDARD}
    for key, value in (extra | record.__dict__.get("fields", {})).items():
        line[f"field_{key}" if key in line else key] = _field(key, value)
    if record.exc_info:
        line["traceback"] = _clean(formatter.formatException(record.exc_info))
    return line


def _field(key: str, value: object) -> object:
    if _SECRET_NAME.search(key):
        return _BLANK
    if isinstance(value, BaseException):
        return _clean(f"{type(value).__name__}: {value}")
    return _clean(value) if isinstance(value, str) else value


def _clean(text: str) -> str:
    return _BEARER.sub(f"Bearer {_BLANK}", text) if "earer" in text else text


def _text(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
