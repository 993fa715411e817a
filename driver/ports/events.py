"""Kubernetes Events: short notes about an object, for people who run `kubectl describe`.

They are best effort by nature: nothing may depend on one having been stored, and nothing may wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Reason(StrEnum):
    """Stable: alerts and scripts match them."""

    DEVICE_DEGRADED = "DeviceDegraded"
    DEVICE_WITHHELD = "DeviceWithheld"
    DEVICE_READY = "DeviceReady"
    DEVICE_RESET = "DeviceReset"
    FIELDS_DROPPED = "FieldsDropped"
    PUBLISH_FAILED = "PublishFailed"
    RECOVERED = "Recovered"
    ORPHAN_REMOVED = "OrphanRemoved"
    LEDGER_REBUILT = "LedgerRebuilt"
    LEDGER_DAMAGED = "LedgerDamaged"
    EVIDENCE_DAMAGED = "EvidenceDamaged"
    PREFLIGHT_PASSED = "PreflightPassed"
    PREFLIGHT_FAILED = "PreflightFailed"
    NODE_CORDONED = "NodeCordoned"
    NODE_UNCORDONED = "NodeUncordoned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Regarding:
    """What an event is about."""

    api_version: str
    kind: str
    name: str
    uid: str
    namespace: str = ""


class EventSink(Protocol):
    def event(self, about: Regarding, reason: Reason, note: str, *, warning: bool = False) -> None:
        """Returns at once and never raises; may be lost."""
