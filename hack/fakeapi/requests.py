"""The log of requests: what a test or a demonstration asks afterwards, and waits on meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition
from typing import Final

READS: Final = frozenset({"get", "list", "watch", "discover"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """`status`: HTTP, 0 where the connection was cut or left hanging on purpose."""

    verb: str
    resource: str
    path: str
    user_agent: str
    status: int

    @property
    def writes(self) -> bool:
        return self.verb not in READS


class RequestLog:
    def __init__(self) -> None:
        self._changed = Condition()
        self._requests: list[Request] = []

    def add(self, request: Request) -> None:
        with self._changed:
            self._requests.append(request)
            self._changed.notify_all()

    def all(self, verb: str = "", resource: str = "") -> list[Request]:
        with self._changed:
            return [
                r for r in self._requests if verb in {"", r.verb} and resource in {"", r.resource}
            ]

    def writes(self) -> list[Request]:
        return [r for r in self.all() if r.writes]

    def clear(self) -> None:
        with self._changed:
            self._requests.clear()

    def wait(self, enough: Callable[[list[Request]], bool], timeout: float = 10.0) -> None:
        """Until `enough(requests)`; a watch is logged when it is open."""
        with self._changed:
            if not self._changed.wait_for(lambda: enough(self._requests), timeout):
                seen = ", ".join(f"{r.verb} {r.resource} {r.status}" for r in self._requests)
                raise TimeoutError(f"waited {timeout} s for requests; seen: {seen or 'none'}")

    def wait_for(self, verb: str, resource: str, count: int = 1, timeout: float = 10.0) -> None:
        def enough(requests: list[Request]) -> bool:
            return sum((r.verb, r.resource) == (verb, resource) for r in requests) >= count

        self.wait(enough, timeout)
