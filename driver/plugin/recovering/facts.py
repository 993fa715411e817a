"""Ledger, hardware and CDI folder as they are now, for the core to compare.

Must not know what is repaired, nor ask the API.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set as AbstractSet
from typing import Protocol

from driver.core.cdi import JsonValue, build_spec, read_devices
from driver.core.errors import NvmlError, StateError
from driver.core.ids import ClaimUID, GpuUuid
from driver.core.inventory import Inventory
from driver.core.ledger import Entry, Phase
from driver.core.names import is_of_gpu
from driver.core.recovery import Facts
from driver.core.recovery_rebuild import CdiFile, GpuNow, KnownClaim
from driver.core.snapshot import GpuFacts, InstanceFacts
from driver.observe.logs import Log
from driver.plugin.node import Hardware, Identity
from driver.ports.state import CdiStore, DriverRoot, Ledger, partitions_of

log = Log(__name__)


class Instances(Protocol):
    def instances(self, gpu: GpuUuid) -> tuple[InstanceFacts, ...]:
        """What is on the hardware now, whoever made it."""
        ...


class FactFinder:
    """Reads anew at each call."""

    def __init__(
        self,
        *,
        identity: Identity,
        hardware: Hardware,
        ledger: Ledger,
        cdi: CdiStore,
        driver_root: DriverRoot,
        library: Instances,
    ) -> None:
        self._identity = identity
        self._hardware = hardware
        self._ledger = ledger
        self._cdi = cdi
        self._driver_root = driver_root
        self._library = library

    def entries(self) -> Mapping[ClaimUID, Entry]:
        return self._ledger.entries()

    def files(self) -> dict[ClaimUID, CdiFile]:
        """Empty while a ledger file cannot be read by this version: it may explain any of them."""
        if self._ledger.unread():
            return {}
        return self.files_without(frozenset())

    def files_without(self, claims: AbstractSet[ClaimUID]) -> dict[ClaimUID, CdiFile]:
        """Those of other claims."""
        return {uid: self.file(uid) for uid in sorted(self._cdi.claims() - claims)}

    def find(
        self,
        claims: Mapping[ClaimUID, KnownClaim | None],
        *,
        released_for: Mapping[ClaimUID, float],
        grace: float,
        only: ClaimUID | None = None,
    ) -> Facts:
        """`only`: enough for the repair of this claim."""
        entries, files = self.entries(), self.files()
        inventory = self._hardware.inventory
        gpus = {} if inventory is None or self._hardware.problem else dict(inventory.gpus)
        if only is not None:
            wanted = self.gpus_of(only, entries, files)
            gpus = {uuid: facts for uuid, facts in gpus.items() if uuid in wanted}
        looked_at = [e for uid, e in entries.items() if only is None or uid == only]
        return Facts(
            boot_id=self._identity.boot_id,
            pool=self._identity.pool,
            gpus=self._now(gpus.values(), inventory) if inventory else {},
            entries=entries,
            files=files,
            claims=claims,
            stale=frozenset(e.uid for e in looked_at if self._is_stale(e)),
            released_for=released_for,
            grace=grace,
        )

    def gpus_of(
        self,
        uid: ClaimUID,
        entries: Mapping[ClaimUID, Entry],
        files: Mapping[ClaimUID, CdiFile],
    ) -> tuple[GpuUuid, ...]:
        """Whose locks a repair of this claim needs."""
        if (entry := entries.get(uid)) is not None:
            return entry.gpus
        inventory = self._hardware.inventory
        named: Collection[str] = (files[uid].devices or {}) if uid in files else ()
        known = inventory.gpus if inventory else ()
        return tuple(sorted(g for g in known if any(is_of_gpu(n, g) for n in named)))

    def spec(self, entry: Entry) -> dict[str, JsonValue] | None:
        """What its CDI file should say; None where that cannot be told now."""
        inventory = self._hardware.inventory
        if inventory is None or any(gpu not in inventory.gpus for gpu in entry.gpus):
            return None
        gpus = inventory.gpus
        partitions = partitions_of(entry, gpus)
        try:
            files = self._driver_root.files(tuple(gpus[g] for g in entry.gpus), partitions)
        except StateError as error:
            log.info("CDI file cannot be checked", claim=entry.uid, reason=str(error))
            return None
        return build_spec(entry, files)

    def _is_stale(self, entry: Entry) -> bool:
        if entry.boot_id != self._identity.boot_id or entry.phase is not Phase.COMPLETED:
            return False
        spec = self.spec(entry)
        try:
            return spec is not None and self._cdi.read(entry.uid) != spec
        except StateError as error:
            log.warning("CDI file cannot be read", claim=entry.uid, reason=str(error))
            return False

    def file(self, uid: ClaimUID) -> CdiFile:
        try:
            return CdiFile(devices=read_devices(self._cdi.read(uid), uid))
        except StateError as error:
            log.warning("CDI file cannot be read", claim=uid, reason=str(error))
            return CdiFile(devices=None)

    def _now(self, gpus: Iterable[GpuFacts], inventory: Inventory) -> dict[GpuUuid, GpuNow]:
        cut = {b.uuid for b in inventory.boards}
        found: dict[GpuUuid, GpuNow] = {}
        for gpu in gpus:
            geometry = gpu.mig.geometry
            try:
                there = self._library.instances(gpu.uuid) if geometry else ()
            except NvmlError as error:
                log.info("GPU is left out of recovery", gpu=gpu.uuid, reason=str(error))
                continue
            found[gpu.uuid] = GpuNow(
                instances=there,
                profiles={p.id: p.name for p in geometry.profiles} if geometry else {},
                cut=gpu.uuid in cut,
            )
        return found
