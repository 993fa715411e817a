"""What the plugin wrote to the API server, from the server's own audit log."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tests.e2e.cluster import NAMESPACE, kind

_USER = f"system:serviceaccount:{NAMESPACE}:tessera-plugin"
_READS = {"get", "list", "watch"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    verb: str
    name: str
    code: int


def position() -> int:
    """How long the log is now: what follows is new."""
    return len(_lines())


def writes(since: int) -> list[Write]:
    """Of slices, accepted or not, by any of the plugin's pods. The status of a claim that is
    prepared is another thing: it is written once for each.
    """
    found = []
    for line in _lines()[since:]:
        event = json.loads(line)
        reference = event.get("objectRef", {})
        own = event["user"]["username"] == _USER and event["verb"] not in _READS
        if own and reference.get("resource") == "resourceslices":
            found.append(
                Write(
                    verb=event["verb"],
                    name=f"{reference.get('resource')}/{reference.get('name', '')}",
                    code=event.get("responseStatus", {}).get("code", 0),
                )
            )
    return found


def _lines() -> list[str]:
    return kind("audit").splitlines()
