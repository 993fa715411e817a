"""Whether an operator may take responsibility for an item.

Why it exists: an acknowledgement is the only proof that a human gives, so it is bound to one item
and to the board in hand by its serial number, and it is refused while the fault can still be seen.
It ends nothing by itself: a probe has to pass as well. Only of a board that was taken out it ends
what is held against it, whatever that is.

Must not know how it is transported, or who may do it.
"""

from __future__ import annotations

from driver.core.errors import TesseraError
from driver.core.health.gpus import gone
from driver.core.health.items import Evidence, Identity, Item, Kind
from driver.core.health.signals import Acknowledged, Need
from driver.core.ids import GpuUuid


class NotAcknowledged(TesseraError):
    """Says why, and what to do instead."""


def check(evidence: Evidence, wanted: Acknowledged, identity: Identity) -> None:
    """NotAcknowledged where `take` would change nothing."""
    reason = refusal(evidence, wanted, identity)
    if reason is not None:
        raise NotAcknowledged(f"{wanted.name} on {wanted.gpu}: {reason}")


def acknowledgeable(evidence: Evidence, wanted: Acknowledged, identity: Identity) -> list[Item]:
    """The items under this name that an operator may end: those that need one, and all of a GPU
    that is not there any more, because no reset and no probe will ever be seen of it.
    """
    over = is_gone(evidence, wanted.gpu, identity)
    return [i for i in _open(evidence, wanted) if over or i.weight is Need.OPERATOR]


def is_gone(evidence: Evidence, gpu: GpuUuid, identity: Identity) -> bool:
    """Not read by this process, and missing if it was by one before."""
    return gpu not in identity.serials and gone(evidence, gpu)


def refusal(evidence: Evidence, wanted: Acknowledged, identity: Identity) -> str | None:
    same = _open(evidence, wanted)
    if not same:
        return f"nothing is held against it by that name; open are: {_names(evidence, wanted)}"
    items = acknowledgeable(evidence, wanted, identity)
    if not items:
        return f"needs {_needs(same)}, not an acknowledgement"
    if not wanted.by.strip():
        return "say who acknowledges it"
    there = not is_gone(evidence, wanted.gpu, identity)
    persists = next((p for i in items if (p := _persists(i, wanted, there=there))), None)
    return _mistaken(items, wanted, identity) or persists


def _mistaken(items: list[Item], wanted: Acknowledged, identity: Identity) -> str | None:
    """A GPU that has gone is known by the serial number that was read while it was there, and a
    board that never had one that can be read, by its UUID.
    """
    noted = next((i.serial for i in items if i.serial), "")
    serial = identity.serials.get(wanted.gpu) or noted
    if wanted.serial == (serial or wanted.gpu):
        return None
    if not serial:
        return "the board's serial number cannot be read; give the GPU's UUID in its place"
    return f"the board's serial number is {serial}, not {wanted.serial!r}; check the node"


def _persists(item: Item, wanted: Acknowledged, *, there: bool) -> str | None:
    well = item.well is not None and item.well > item.last
    if there and not item.over and not well:
        return f"{item.source} still reports it: {item.detail or 'repair or replace the board'}"
    if wanted.at <= item.last:
        return "it was seen again meanwhile; look at it, and acknowledge it anew"
    return None


def _open(evidence: Evidence, wanted: Acknowledged) -> list[Item]:
    return [
        i
        for i in evidence.items.values()
        if i.scope.gpu == wanted.gpu and i.name == wanted.name and not i.passing
    ]


def _names(evidence: Evidence, wanted: Acknowledged) -> str:
    items = evidence.items.values()
    names = {i.name for i in items if i.scope.gpu == wanted.gpu and not i.passing}
    return ", ".join(sorted(names)) or "none"


def _needs(items: list[Item]) -> str:
    needs = {"a look" if i.kind is Kind.UNKNOWN else f"a {i.weight}" for i in items}
    return " and ".join(sorted(needs))
