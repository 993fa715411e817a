"""ResourceSlice contents as frozen values: what the driver wants to publish.

Why it exists: the server's objects stay dicts in the adapters (typed models lose unknown fields),
but what *we* decide should be comparable, hashable and impossible to mis-spell. `codec.py` turns
these into JSON for each served version; `limits.py` says what the server would refuse.

Source: resource.k8s.io/v1 types of Kubernetes 1.37, restated.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Text:
    """A string attribute, at most 64 bytes."""

    value: str


@dataclass(frozen=True, slots=True)
class Version:
    """A semantic version 2.0: three numbers, no leading zeros."""

    value: str


@dataclass(frozen=True, slots=True)
class Number:
    """A 64-bit integer attribute."""

    value: int


@dataclass(frozen=True, slots=True)
class Flag:
    """A boolean attribute."""

    value: bool


Attribute = Text | Version | Number | Flag


class TaintEffect(StrEnum):
    """`NONE` only informs; `NO_EXECUTE` also ends pods that do not tolerate it."""

    NONE = "None"
    NO_SCHEDULE = "NoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Taint:
    """`timeAdded` is the server's to fill and to keep, so it is not part of what we want."""

    key: str
    value: str
    effect: TaintEffect


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterSet:
    """What a whole GPU has to give: names and amounts."""

    name: str
    counters: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        _sort(self, "counters")


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumption:
    """What one device takes from one counter set."""

    counter_set: str
    counters: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        _sort(self, "counters")


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One allocatable device. `capacity`: name and plain number (bytes for memory)."""

    name: str
    attributes: tuple[tuple[str, Attribute], ...] = ()
    capacity: tuple[tuple[str, int], ...] = ()
    consumes: tuple[Consumption, ...] = ()
    taints: tuple[Taint, ...] = ()

    def __post_init__(self) -> None:
        _sort(self, "attributes")
        _sort(self, "capacity")


def _sort(owner: object, field_name: str) -> None:
    """JSON maps have no order; ours is by name, so that equal content is an equal value.

    What is in order stays the same object: a device with other taints shares the rest.
    """
    pairs = getattr(owner, field_name)
    ordered = tuple(sorted(pairs, key=lambda pair: pair[0]))
    if ordered != pairs:
        object.__setattr__(owner, field_name, ordered)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One ResourceSlice without its pool's generation and count, which `Pool` implies.

    Either `devices` or `counter_sets`, never both; both empty is a pool with nothing in it.
    """

    name: str
    devices: tuple[Device, ...] = ()
    counter_sets: tuple[CounterSet, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """All slices of one node, in the order in which the scheduler visits them (by name)."""

    driver: str
    node: str
    name: str
    slices: tuple[Slice, ...] = ()
