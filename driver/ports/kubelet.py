"""The kubelet's side of a claim: what it asks for, what it gets back.

The kubelet adapter translates gRPC messages (v1, v1beta1) to these values; the plugin never sees a
protobuf type and the adapter never sees a ledger.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, Protocol

from driver.core.ids import CdiId, ClaimUID, DeviceName, OpId, PoolName

OP_ID: Final[ContextVar[OpId]] = ContextVar("op_id")
"""Set while an RPC is served. A thread that works for the RPC must be given its context."""


def new_op_id() -> OpId:
    return OpId(secrets.token_hex(4))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRef:
    """All that the kubelet says of a claim; the object itself must be read from the API."""

    namespace: str
    name: str
    uid: ClaimUID

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} ({self.uid})"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedDevice:
    """One allocation result, ready. `requests`: base names, without a sub-request after the slash.

    The same claim must always give the same value: the kubelet appends, it does not compare.
    """

    requests: tuple[str, ...]
    pool: PoolName
    device: DeviceName
    cdi_ids: tuple[CdiId, ...]
    share_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why one claim could not be served; shown to users in the pod's events."""

    message: str


PrepareAnswer = tuple[PreparedDevice, ...] | Failure
UnprepareAnswer = Failure | None


class ClaimService(Protocol):
    """Implemented by the plugin, called by the gRPC adapter from several threads at once.

    Both methods answer for every claim asked and never raise for one claim's sake.
    """

    def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[ClaimUID, PrepareAnswer]: ...

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[ClaimUID, UnprepareAnswer]: ...


class DeviceState(StrEnum):
    """What the kubelet shows in a pod's status for a device."""

    UNKNOWN = "unknown"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHealth:
    """`since`: seconds since the epoch, when the state last changed. `message`: for the user."""

    pool: PoolName
    device: DeviceName
    state: DeviceState
    since: float
    message: str = ""


class HealthFeed(Protocol):
    """The health of every device that the driver has; asked by the streams to the kubelet."""

    def current(self) -> tuple[DeviceHealth, ...]:
        """The complete list, as of now. Returns at once."""
        ...

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """`on_change` is called, in any thread, when the list is another one."""
        ...


RpcOutcome = Literal["ok", "claim_error", "error"]
"""`claim_error`: answered, with an error for at least one claim; `error`: no answer at all."""


class RpcMetrics(Protocol):
    """Told once per RPC of the kubelet, after the answer; self-probes are left out.

    `method` is gRPC's full name without the leading slash. Must not raise.
    """

    def observe(self, method: str, seconds: float, outcome: RpcOutcome) -> None: ...
