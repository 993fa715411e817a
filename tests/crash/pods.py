"""Pods of the tortured node, and what the kubelet was told of their claims."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from driver.core.devices import EVERY_SLOT, Allocatable
from driver.ports.kube import JsonObject

Told = dict[str, Any]


@dataclass(kw_only=True)
class Pod:
    """`answer`: what the kubelet was told last, if it is sure. `gone`: told that nothing is left.
    `deleted`: by force, so that the scheduler gives its device away.
    """

    name: str
    device: Allocatable
    obj: JsonObject
    ending: bool = False
    deleted: bool = False
    answer: str | None = None
    gone: bool = False
    unsure: bool = False

    def end(self) -> None:
        self.ending = True
        self.answer = None

    def asked(self, calls: list[tuple[str, str]], *, alone: bool) -> None:
        """Where calls of both kinds, or of both plugins, overtake each other, nothing is known."""
        kinds = {what for what, name in calls if name == self.name} - {"lose"}
        self.unsure = len(kinds) > 1 or (bool(kinds) and not alone and self.ending)
        if kinds and "prepare" in kinds:
            self.gone = False

    def told(self, line: Told) -> None:
        if line["said"] is None or self.unsure:
            return
        if line["call"] == "prepare":
            assert self.answer in {None, line["said"]}, f"{self.name} is answered otherwise"
            self.answer = None if self.ending else line["said"]
        else:
            self.gone = True


def overlap(one: Allocatable, other: Allocatable) -> bool:
    if one.gpu.uuid != other.gpu.uuid:
        return False
    masks = [d.slots if d.slots > 0 else EVERY_SLOT for d in (one, other)]
    return bool(masks[0] & masks[1])
