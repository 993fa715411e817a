"""Prepares and unprepares claims: reads, decides with the core, writes in an order that is safe.

The order of a preparation: CDI file, then ledger, then the answer. A crash in between leaves at
most a file that nobody was told of, which the next preparation of that claim overwrites. The order
of an unpreparation is the reverse.

Must not know gRPC. Every error concerns one claim, and its text is for the user of that claim.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from pydantic import ValidationError

from api.resource.claim import ResourceClaim
from driver.core.cdi import build_spec
from driver.core.claims import Intent, read_intent
from driver.core.errors import ClaimError, KubeError, KubeNotFound, StateError
from driver.core.ids import ClaimUID
from driver.core.ledger import Entry, conflict, entry_for
from driver.observe.logs import Log
from driver.plugin.node import Hardware, Identity
from driver.plugin.served import ServedVersion
from driver.ports.kube import JsonObject, KubeApi
from driver.ports.kubelet import (
    ClaimRef,
    Failure,
    PrepareAnswer,
    PreparedDevice,
    UnprepareAnswer,
)
from driver.ports.state import CdiStore, DriverRoot, Ledger

log = Log(__name__)


class Claims:
    """Implements `driver.ports.kubelet.ClaimService`."""

    def __init__(
        self,
        *,
        identity: Identity,
        hardware: Hardware,
        api: KubeApi,
        served: ServedVersion,
        ledger: Ledger,
        cdi: CdiStore,
        driver_root: DriverRoot,
        on_change: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`on_change` is told how many claims are prepared."""
        self._identity = identity
        self._hardware = hardware
        self._api = api
        self._served = served
        self._ledger = ledger
        self._cdi = cdi
        self._driver_root = driver_root
        self._on_change = on_change
        on_change(len(ledger.entries()))
        self._lock = threading.Lock()

    def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[ClaimUID, PrepareAnswer]:
        return {ref.uid: self._prepare_one(ref) for ref in claims}

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[ClaimUID, UnprepareAnswer]:
        return {ref.uid: self._unprepare_one(ref) for ref in claims}

    def _prepare_one(self, ref: ClaimRef) -> PrepareAnswer:
        try:
            intent = self._read(ref)
            if not intent.wanted:
                return ()
            # The request to the API is over: nothing slow happens under the lock.
            with self._lock:
                entry = self._hand_out(intent)
        except (ClaimError, StateError) as error:
            log.warning("claim not prepared", claim=str(ref), reason=str(error))
            return Failure(message=str(error))
        log.info(
            "claim prepared",
            claim=str(ref),
            devices=[h.device for h in entry.holdings],
        )
        return tuple(
            PreparedDevice(
                requests=(h.request,),
                pool=h.pool,
                device=h.device,
                cdi_ids=(h.cdi_id,),
                share_id=h.share_id,
            )
            for h in entry.holdings
        )

    def _read(self, ref: ClaimRef) -> Intent:
        """The claim as the API has it now, never from a cache: its allocation may be new."""
        inventory = self._hardware.inventory
        if inventory is None:
            raise ClaimError(
                f"claim {ref}: the GPUs of this node cannot be used yet: {self._hardware.problem}"
            )
        return read_intent(
            _parse(self._fetch(ref), ref),
            uid=ref.uid,
            driver=self._identity.driver,
            pool=self._identity.pool,
            inventory=inventory,
        )

    def _fetch(self, ref: ClaimRef) -> JsonObject:
        try:
            return self._api.get(self._served.get().claims, ref.name, namespace=ref.namespace)
        except KubeNotFound as error:
            raise ClaimError(f"claim {ref} does not exist any more") from error
        except KubeError as error:
            raise ClaimError(f"claim {ref} cannot be read, will be tried again: {error}") from error

    def _hand_out(self, intent: Intent) -> Entry:
        """Idempotent: what is already as it should be is not written again."""
        identity = self._identity
        entry = entry_for(intent, pool=identity.pool, boot_id=identity.boot_id)
        entries = self._ledger.entries()
        if held := conflict(entry, entries.values()):
            raise ClaimError(f"claim {intent.namespace}/{intent.name}: {held}")
        gpus = {w.device.gpu.uuid: w.device.gpu for w in intent.wanted}
        spec = build_spec(entry, self._driver_root.files(tuple(gpus.values())))
        if self._cdi.ensure(entry.uid, spec) and entries.get(entry.uid) == entry:
            log.warning("CDI file was missing or altered, restored", claim=entry.uid)
        if entries.get(entry.uid) != entry:
            self._ledger.put(entry)
            self._on_change(len(self._ledger.entries()))
        return entry

    def _unprepare_one(self, ref: ClaimRef) -> UnprepareAnswer:
        """From the ledger alone: the claim may be gone from the API. Unknown claims succeed."""
        try:
            with self._lock:
                known = ref.uid in self._ledger.entries()
                self._cdi.remove(ref.uid)
                self._ledger.remove(ref.uid)
                self._on_change(len(self._ledger.entries()))
        except StateError as error:
            log.warning("claim not unprepared", claim=str(ref), reason=str(error))
            return Failure(message=f"claim {ref}: {error}")
        log.info("claim unprepared", claim=str(ref), known=known)
        return None


def _parse(obj: JsonObject, ref: ClaimRef) -> ResourceClaim:
    try:
        return ResourceClaim.model_validate(obj)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ClaimError(
            f"claim {ref} is not understood at {where}: {first['msg']}", retryable=False
        ) from error
