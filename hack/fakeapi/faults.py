"""What goes wrong, by rule: the first rule that fits a request decides, until it is used up."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A refusal that the object did not earn: 429, 500, 503."""

    status: int
    reason: str = "InternalError"
    message: str = "injected"
    retry_after: int | None = None


@dataclass(frozen=True, slots=True)
class Hang:
    """Take the request and never answer."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Close the connection instead of answering; nothing was done."""


@dataclass(frozen=True, slots=True)
class LostAnswer:
    """Do what was asked, then close the connection: a write that "failed" and happened."""


@dataclass(frozen=True, slots=True)
class Silence:
    """A watch that opens and never says anything, not even a bookmark."""


@dataclass(frozen=True, slots=True)
class EndAtOnce:
    """A watch that opens and ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorEvent:
    """A watch that opens, says ERROR and ends."""

    status: int
    reason: str
    message: str = "injected"


@dataclass(frozen=True, slots=True)
class Garbage:
    """Not JSON: what a proxy in between may answer with, status 200."""


Fault = Answer | Hang | Cut | LostAnswer | Silence | EndAtOnce | ErrorEvent | Garbage


@dataclass(slots=True, kw_only=True)
class Rule:
    """`verb` and `resource`: those of the request log; empty fits all. `left` None: for ever."""

    fault: Fault
    verb: str = ""
    resource: str = ""
    left: int | None = None
    hits: int = 0

    def fits(self, verb: str, resource: str) -> bool:
        return self.verb in {"", verb} and self.resource in {"", resource} and self.left != 0


class Faults:
    def __init__(self) -> None:
        self._lock = Lock()
        self._rules: list[Rule] = []

    def add(
        self, fault: Fault, *, verb: str = "", resource: str = "", times: int | None = None
    ) -> Rule:
        rule = Rule(fault=fault, verb=verb, resource=resource, left=times)
        with self._lock:
            self._rules.append(rule)
        return rule

    def clear(self) -> None:
        with self._lock:
            self._rules.clear()

    def take(self, verb: str, resource: str) -> Fault | None:
        with self._lock:
            rule = next((r for r in self._rules if r.fits(verb, resource)), None)
            if rule is None:
                return None
            rule.hits += 1
            if rule.left is not None:
                rule.left -= 1
            return rule.fault
