"""When the node's clock is set back, all that is remembered goes back with it.

Why it exists: a fault that seems to lie in the future could not be cleared by any proof for hours,
and one whose age shrank to nothing would be waited for again. Moved by the same amount, everything
keeps its age and its order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from driver.core.health.items import Evidence, Item

JITTER: Final = 1.0
"""Seconds; two threads that read the clock and then wait for each other are no clock set back."""


def in_step(evidence: Evidence, now: float) -> Evidence:
    """As if it had been seen by the clock that says `now`."""
    ahead = evidence.clock - now
    if ahead <= JITTER:
        return evidence
    return replace(
        evidence,
        clock=now,
        items={key: _moved(item, ahead) for key, item in evidence.items.items()},
        cleared={k: replace(c, at=c.at - ahead) for k, c in evidence.cleared.items()},
        sightings={sighting: at - ahead for sighting, at in evidence.sightings.items()},
        tries={scope: replace(t, at=t.at - ahead) for scope, t in evidence.tries.items()},
    )


def _moved(item: Item, ahead: float) -> Item:
    by = item.acknowledged
    return replace(
        item,
        first=item.first - ahead,
        last=item.last - ahead,
        well=_earlier(item.well, ahead),
        reset=_earlier(item.reset, ahead),
        overruled=_earlier(item.overruled, ahead),
        acknowledged=replace(by, at=by.at - ahead) if by else None,
    )


def _earlier(at: float | None, ahead: float) -> float | None:
    return None if at is None else at - ahead
