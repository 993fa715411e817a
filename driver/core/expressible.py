"""What a server can store of taints, and what stands in for those that it cannot.

Why it exists: before 1.36, or with the feature off, a server drops taints without a word, and a
device that is withheld would be offered; one before 1.35 refuses a whole slice for the effect None.
Must not know how it is found out, or why a device is tainted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from api.resource.types import Taint, TaintEffect
from driver.core.ids import DeviceName

Taints = Mapping[DeviceName, tuple[Taint, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaintSupport:
    """`stored`: taints are kept. `none`: the effect None is known."""

    stored: bool = True
    none: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Expressed:
    """`taints`: to be written. `left_out`: devices that must not be in the slices at all."""

    taints: Taints
    left_out: frozenset[DeviceName] = frozenset()


def expressed(taints: Taints, support: TaintSupport, in_use: Collection[DeviceName]) -> Expressed:
    """Without taints, a device that must not be given out is left out, which comes to the same for
    a scheduler. One in use stays: what it consumes would be taken for free.
    """
    if not support.stored:
        hard = {name for name, found in taints.items() if any(withholds(t) for t in found)}
        return Expressed(taints={}, left_out=frozenset(hard.difference(in_use)))
    if support.none:
        return Expressed(taints=taints)
    known = {name: tuple(t for t in found if withholds(t)) for name, found in taints.items()}
    return Expressed(taints={name: found for name, found in known.items() if found})


def withholds(taint: Taint) -> bool:
    """Whether a claim must tolerate it to get the device."""
    return taint.effect is not TaintEffect.NONE
