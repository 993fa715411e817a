"""The slices of this node as the server has them, each version decoded once.

Why it exists: a look comes after each allocation, and what is stored changes far less often than
that; to decode a slice of 64 devices costs more than to order all of them. What we have just
written is known without decoding: the server returns it as we sent it, with times of taints.

Must not know why something is written.
"""

from __future__ import annotations

from api.resource.codec import StoredSlice, decode_stored, keeps
from api.resource.types import Slice
from driver.ports.kube import JsonObject, Reflector


class StoredSlices:
    """`read` is for one thread, and not while something is written."""

    def __init__(self, reflector: Reflector) -> None:
        self._reflector = reflector
        self._known: dict[tuple[str, str], StoredSlice] = {}

    def wait_synced(self, timeout: float) -> bool:
        return self._reflector.wait_synced(timeout)

    def read(self) -> list[StoredSlice]:
        """All of them; what is gone or overwritten is forgotten."""
        found = {}
        for obj in self._reflector.snapshot():
            key = _version(obj)
            found[key] = self._known.get(key) or decode_stored(obj)
        self._known = found
        return list(found.values())

    def wrote(self, sent: JsonObject, answer: JsonObject, wanted: Slice) -> None:
        """Take in a write of ours before the watch tells of it. `sent` is `wanted`, encoded."""
        if keeps(answer, sent):
            self._known[_version(answer)] = decode_stored(answer, content=wanted)
        self._reflector.observe(answer)


def _version(obj: JsonObject) -> tuple[str, str]:
    metadata = obj["metadata"]
    return metadata["name"], metadata["resourceVersion"]
