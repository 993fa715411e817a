"""When the registration socket has to be made anew: a pure decision over what the kubelet did.

Why it exists: up to Kubernetes 1.35 a registration that fails after GetInfo is never tried again by
the kubelet, and the node stays without this driver for good. A new socket makes it try.

Must not know: gRPC, threads, clocks. Times are seconds of one monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Handshake:
    """`since`: when the socket appeared; `asked_at`: the GetInfo that no success has followed yet.

    `error` is the newest that the kubelet sent, kept until it registers us.
    """

    since: float
    asked_at: float | None = None
    registered: bool = False
    error: str = ""
    missed: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do for `seconds` (None: until the kubelet calls)."""

    seconds: float | None


@dataclass(frozen=True, slots=True)
class Recreate:
    """Remove the registration socket and make it anew."""


@dataclass(frozen=True, slots=True)
class Unseen:
    """The kubelet has not found the socket; usually the registrar directory is another one."""


Action = Wait | Recreate | Unseen


def info_asked(h: Handshake, *, now: float) -> Handshake:
    """Repeated questions do not move the deadline, or a kubelet that fails quickly would."""
    return replace(h, asked_at=now) if h.asked_at is None else h


def notified(h: Handshake, *, registered: bool, error: str, now: float) -> Handshake:
    if registered:
        return replace(h, registered=True, error="", asked_at=None)
    return replace(info_asked(h, now=now), registered=False, error=error)


def recreated(h: Handshake, *, now: float) -> Handshake:
    return Handshake(since=now, error=h.error)


def missed(h: Handshake) -> Handshake:
    """The silence has been reported; once is enough."""
    return replace(h, missed=True)


def decide(h: Handshake, *, patience: float, now: float) -> Action:
    if h.asked_at is not None:
        due = h.asked_at + patience - now
        return Wait(due) if due > 0 else Recreate()
    if h.registered or h.missed:
        return Wait(None)
    due = h.since + patience - now
    return Wait(due) if due > 0 else Unseen()
