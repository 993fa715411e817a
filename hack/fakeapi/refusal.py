"""What the server says no with: a Status object."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any


class Refusal(Exception):
    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    def body(self) -> dict[str, Any]:
        details = {} if self.retry_after is None else {"retryAfterSeconds": self.retry_after}
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": details,
            "code": self.status,
        }


def not_found(plural: str, name: str) -> Refusal:
    return Refusal(HTTPStatus.NOT_FOUND, "NotFound", f'{plural} "{name}" not found')


def conflict(plural: str, name: str, why: str) -> Refusal:
    message = f'Operation cannot be fulfilled on {plural} "{name}": {why}'
    return Refusal(HTTPStatus.CONFLICT, "Conflict", message)


def exists(plural: str, name: str) -> Refusal:
    return Refusal(HTTPStatus.CONFLICT, "AlreadyExists", f'{plural} "{name}" already exists')


def invalid(kind: str, name: str, causes: list[str]) -> Refusal:
    message = f'{kind} "{name}" is invalid: {", ".join(causes)}'
    return Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", message)


def bad_request(message: str) -> Refusal:
    return Refusal(HTTPStatus.BAD_REQUEST, "BadRequest", message)


def expired(message: str) -> Refusal:
    return Refusal(HTTPStatus.GONE, "Expired", message)
