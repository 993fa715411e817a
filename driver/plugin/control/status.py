"""What the plugin knows of its node, as one document: the answer to `tessera status`.

Why it exists: an administrator who is called at night needs one page that says what is withheld,
since when, why, what would clear it and who must act, and which pods have what. Indexes and minor
numbers stand here and nowhere else: they move over reboots.

A pure function of what is known; must not know how it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime

from driver.core.health.explain import clearing
from driver.core.health.items import Item, KnownGpu
from driver.core.health.judge import READY, Judgement, Reason
from driver.core.ids import GpuUuid
from driver.core.inventory import Inventory
from driver.core.ledger import Entry, Holding
from driver.core.snapshot import GpuFacts
from driver.plugin.control.facts import Facts, Release
from driver.plugin.control.notes import notes

Document = dict[str, object]


def document(facts: Facts) -> Document:
    """JSON values only. Keys are camelCase, as everywhere in the API; times are RFC 3339 in UTC."""
    inventory, found = facts.inventory, facts.judgements
    return {
        "node": facts.identity.node,
        "driver": facts.identity.driver,
        "version": facts.version,
        "bootId": facts.identity.boot_id,
        "leads": facts.leads,
        "nvidiaDriver": inventory.driver.driver if inventory else None,
        "problem": facts.problem,
        "release": _release(facts.release),
        "state": found.state.value,
        "reasons": _reasons(found.node),
        "gpus": [
            _gpu(uuid, facts, found.gpus.get(uuid, READY)) for uuid in _gpus(inventory, found.gpus)
        ],
        "devices": _devices(facts),
        "claims": [_claim(entry) for entry in facts.entries.values()],
        "evidence": [_item(item) for item in facts.evidence.items.values()],
        "unsavedEvidence": facts.unsaved,
        "kernelLog": asdict(facts.kernel) if facts.kernel else None,
    }


def rfc3339(at: float | None) -> str | None:
    if at is None:
        return None
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return None


def _release(release: Release | None) -> Document | None:
    if release is None:
        return None
    return {"secondsLeft": round(release.seconds_left, 1), "held": release.held}


def _gpus(inventory: Inventory | None, judged: Iterable[GpuUuid]) -> list[GpuUuid]:
    """Those that answer in the order of PCI addresses, then those that are only held against."""
    there = [*inventory.gpus] if inventory else []
    return [*there, *(uuid for uuid in judged if uuid not in there)]


def _gpu(uuid: GpuUuid, facts: Facts, judgement: Judgement) -> Document:
    inventory = facts.inventory
    mode = inventory.modes.get(uuid) if inventory else None
    return {
        "uuid": uuid,
        **_seat((inventory.gpus if inventory else {}).get(uuid) or facts.evidence.gpus.get(uuid)),
        "mode": mode.mode.value if mode else None,
        "notes": [*notes(facts, uuid)],
        "state": judgement.state.value,
        "since": rfc3339(judgement.since),
        "reasons": _reasons(judgement),
    }


def _seat(facts: GpuFacts | KnownGpu | None) -> Document:
    """Of one that is missing, what is known from before."""
    if facts is None:
        return dict.fromkeys(("index", "minor", "pci", "product", "serial"))
    if isinstance(facts, KnownGpu):
        known = {"minor": facts.minor, "pci": str(facts.pci), "serial": facts.serial or None}
        return {"index": None, "product": None, **known}
    return {
        "index": facts.index,
        "minor": facts.minor,
        "pci": str(facts.pci),
        "product": facts.product,
        "serial": facts.serial,
    }


def _devices(facts: Facts) -> list[Document]:
    inventory, found = facts.inventory, facts.judgements
    if inventory is None:
        return []
    return [
        {
            "name": name,
            "gpu": device.gpu.uuid,
            "state": (judgement := found.devices.get(name, READY)).state.value,
            "since": rfc3339(judgement.since),
            "reasons": [reason.item.name for reason in judgement.deciding],
            "taints": [f"{t.key}={t.value}:{t.effect.value}" for t in facts.taints.get(name, ())],
        }
        for name, device in inventory.devices.items()
    ]


def _reasons(judgement: Judgement) -> list[Document]:
    return [_reason(reason) for reason in judgement.reasons]


def _reason(reason: Reason) -> Document:
    clears, act = clearing(reason)
    return {
        "name": reason.item.name,
        "state": reason.state.value,
        "source": reason.item.source.value,
        "detail": reason.item.detail,
        "since": rfc3339(reason.item.first),
        "last": rfc3339(reason.item.last),
        "count": reason.item.count,
        "clearsBy": clears,
        "toAct": act,
    }


def _item(item: Item) -> Document:
    by = item.acknowledged
    return {
        "name": item.name,
        "kind": item.kind.value,
        "source": item.source.value,
        "family": item.family.value,
        "gpu": item.scope.gpu,
        "gpuInstance": item.scope.gi,
        "computeInstance": item.scope.ci,
        "need": item.need.value,
        "weight": item.weight.value,
        "detail": item.detail,
        "first": rfc3339(item.first),
        "last": rfc3339(item.last),
        "count": item.count,
        "returns": item.returns,
        "injected": item.injected,
        "suspect": item.suspect,
        "bootId": item.boot_id,
        "serial": item.serial,
        "well": rfc3339(item.well),
        "reset": rfc3339(item.reset),
        "acknowledged": {"by": by.by, "at": rfc3339(by.at)} if by else None,
    }


def _claim(entry: Entry) -> Document:
    return {
        "uid": entry.uid,
        "namespace": entry.namespace,
        "name": entry.name,
        "phase": entry.phase.value,
        "bootId": entry.boot_id,
        "devices": [_holding(each) for each in entry.holdings],
    }


def _holding(each: Holding) -> Document:
    slot = each.slot
    made = slot.made if slot else None
    return {
        "name": each.device,
        "request": each.request,
        "gpu": each.gpu,
        "uuid": each.uuid,
        "profile": slot.profile if slot else None,
        "start": slot.start if slot else None,
        "gpuInstance": made.instance if made else None,
        "computeInstance": made.compute if made else None,
        "adminAccess": each.admin_access,
    }
