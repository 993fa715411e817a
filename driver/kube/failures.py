"""What went wrong, in our own terms: the one place where HTTP becomes the error tree.

Why it exists: callers decide by type (ask again, list again, report), and the client library's own
exceptions changed between its major versions.

Bodies that are no Status are cut short, so that a proxy's error page does not fill the log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from driver.core.errors import (
    KubeConflict,
    KubeError,
    KubeForbidden,
    KubeGone,
    KubeInvalid,
    KubeNotFound,
    KubeUnavailable,
)

MAX_TEXT: Final = 256

_BY_STATUS: Final[Mapping[int, type[KubeError]]] = {
    400: KubeInvalid,
    401: KubeForbidden,
    403: KubeForbidden,
    404: KubeNotFound,
    409: KubeConflict,
    410: KubeGone,
    413: KubeInvalid,
    422: KubeInvalid,
    429: KubeUnavailable,
}


def answered(what: str, status: int, headers: Mapping[str, str], body: bytes) -> KubeError:
    """The server answered, and not with success."""
    parsed = _status_of(body)
    if parsed is None:
        text = body.decode(errors="replace") or "no message"
        return _error(what, status, text, _seconds(headers.get("Retry-After")))
    return _from_status(what, status, parsed, _seconds(headers.get("Retry-After")))


def streamed(what: str, status_object: Mapping[str, Any]) -> KubeError:
    """An ERROR event of a watch carries a Status object instead of an object."""
    code = status_object.get("code")
    return _from_status(what, code if isinstance(code, int) else 0, status_object, None)


def unreachable(what: str, error: Exception) -> KubeUnavailable:
    """No answer, or half of one."""
    return KubeUnavailable(_short(f"{type(error).__name__}: {error}"), what=what)


def unreadable(what: str, error: Exception) -> KubeUnavailable:
    """An answer that is not what the API promises; most often a proxy in between."""
    return KubeUnavailable(_short(f"the answer is not JSON: {error}"), what=what)


def _from_status(
    what: str, code: int, status: Mapping[str, Any], retry_after: float | None
) -> KubeError:
    reason, message = status.get("reason") or "", status.get("message") or "no message"
    text = f"{reason}: {message}" if reason else str(message)
    details = status.get("details")
    if retry_after is None and isinstance(details, Mapping):
        retry_after = _seconds(details.get("retryAfterSeconds"))
    if reason == "Expired":
        code = 410
    return _error(what, code, text, retry_after)


def _error(what: str, code: int, text: str, retry_after: float | None) -> KubeError:
    fallback = KubeUnavailable if code == 0 or code >= 500 else KubeError  # noqa: PLR2004 - HTTP
    kind = _BY_STATUS.get(code, fallback)
    return kind(_short(text), what=what, status=code, retry_after=retry_after)


def _status_of(body: bytes) -> dict[str, Any] | None:
    try:
        parsed = json.loads(body)
    except ValueError:
        return None
    is_status = isinstance(parsed, dict) and parsed.get("kind") == "Status"
    return parsed if is_status else None


def _seconds(value: object) -> float | None:
    """Retry-After may also be a date; the API server never sends one, so it is not read."""
    try:
        seconds = float(str(value))
    except ValueError:
        return None
    return seconds if 0 < seconds < float("inf") else None


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_TEXT else line[: MAX_TEXT - 3] + "..."
