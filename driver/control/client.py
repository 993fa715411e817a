"""One request to the plugin of this node, over its control socket.

Must not know what is asked.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from driver.core.errors import ConfigError, TesseraError

_NAME: Final = "control.sock"
_PATIENCE: Final = 45.0
"""Seconds for an answer: NVML is let go of when the calls that run in it return."""


class NoAnswerError(TesseraError):
    """No plugin answers at this socket."""


class RefusedError(TesseraError):
    """The plugin says no, and why."""


class Client:
    def __init__(self, plugin_dir: Path) -> None:
        self._path = plugin_dir / _NAME

    def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, object] | None = None,
    ) -> dict[str, Any]:
        """ConfigError where what was asked for is not there, or is asked for wrongly."""
        target = path + (f"?{_encoded(query)}" if query else "")
        connection = _UnixConnection(self._path)
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method, target, sent)
            answer = connection.getresponse()
            status, text = answer.status, answer.read()
        except PermissionError as error:
            raise NoAnswerError(f"{self._path} is for root alone; run this as root") from error
        except (OSError, http.client.HTTPException) as error:
            raise self._no_answer(error) from error
        finally:
            connection.close()
        return self._read(status, text)

    @contextmanager
    def expecting_this_version(self) -> Iterator[None]:
        """Around what is made of an answer: NoAnswerError where it is not as this version's is."""
        try:
            yield
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise self._other_version(f"it answers otherwise: {error!r}") from error

    def _other_version(self, why: str) -> NoAnswerError:
        return NoAnswerError(
            f"what answers at {self._path} is no plugin of this version ({why});"
            " use the command of the plugin's own image"
        )

    def _read(self, status: int, text: bytes) -> dict[str, Any]:
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise self._other_version(f"HTTP {status}")
        if status == HTTPStatus.OK:
            return content
        reason = str(content.get("error") or f"HTTP {status}, see the plugin's log")
        if status in {HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND}:
            raise ConfigError(reason)
        raise RefusedError(reason)

    def _no_answer(self, error: Exception) -> NoAnswerError:
        if isinstance(error, FileNotFoundError | ConnectionRefusedError):
            why = "no plugin serves it"
        elif isinstance(error, TimeoutError):
            why = f"no answer in {_PATIENCE:.0f} s"
        else:
            why = str(error) or type(error).__name__
        return NoAnswerError(
            f"{self._path}: {why}; run this on the node, in the plugin's pod (kubectl exec POD --"
            " tessera ...), look at the pod, or give --plugin-dir"
        )


def _encoded(query: Mapping[str, str]) -> str:
    try:
        return urlencode(query)
    except UnicodeEncodeError as error:
        raise ConfigError(f"{error.object!r} is not UTF-8, so it names nothing") from error


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_PATIENCE)
        self._path = path

    def connect(self) -> None:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.settimeout(_PATIENCE)
        try:
            made.connect(str(self._path))
        except OSError:
            made.close()
            raise
        self.sock = made
