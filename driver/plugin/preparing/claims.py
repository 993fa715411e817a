"""Prepares and unprepares claims, as the kubelet asks: the order of what is asked of whom.

All of it happens in the claim's turn: it is read from the API there, and one that is prepared
already is answered from the ledger, after a look whether all of it is there. What concerns a GPU is
done under that GPU's lock besides. Both hold against a second plugin on the same folders.

Must not know gRPC, or how devices are made. Every error concerns one claim, and its text is for the
user of that claim.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from api.resource.claim import ResourceClaim
from driver.core.claims import Intent, own_results, read_intent
from driver.core.errors import ClaimError, NvmlError, StateError, StateTooNew
from driver.core.ids import ClaimUID, DeviceName, GpuUuid
from driver.core.inventory import Inventory
from driver.core.ledger import Entry, answers
from driver.core.recovery_rebuild import KnownClaim, known_claim, named
from driver.observe.logs import Log
from driver.plugin.node import Hardware, Identity
from driver.plugin.preparing.claim_reader import ClaimReader
from driver.plugin.preparing.deadline import Deadline
from driver.plugin.preparing.gpu_locks import GpuLocks
from driver.plugin.preparing.handout import Handout
from driver.plugin.preparing.lost import LostEntries
from driver.plugin.preparing.partitions import Partitions
from driver.plugin.preparing.turns import Turns
from driver.plugin.recovering.facts import FactFinder
from driver.plugin.served import ServedVersion
from driver.ports.kube import KubeApi
from driver.ports.kubelet import (
    ClaimRef,
    Failure,
    PrepareAnswer,
    PreparedDevice,
    UnprepareAnswer,
)
from driver.ports.state import CdiStore, DriverRoot, Ledger

log = Log(__name__)

_LOOK_AGAIN: Final = 0.5
"""Seconds between looks for devices that a second plugin, or recovery, has released."""
_CALL: Final = 35.0
"""Seconds for all waits of one call. The kubelet gives up after 45; the rest is for the work itself
of the claim that got its turn last."""


class Fitness(Protocol):
    """Whether devices may be used, and that they are wanted."""

    def refusal(self, devices: Iterable[tuple[DeviceName, GpuUuid]]) -> str:
        """Why none of them may be prepared; empty where nothing hard is held against them."""
        ...

    def make_way(self, gpus: Collection[GpuUuid]) -> None:
        """End whatever else is done with these GPUs: a claim needs them."""
        ...


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
        partitions: Partitions,
        locks: GpuLocks,
        turns: Turns,
        on_change: Callable[[int], None] = lambda _: None,
        on_prepared: Callable[[Entry], None] = lambda _: None,
        on_lost: Callable[[], None] = lambda: None,
        health: Fitness | None = None,
        patience: float = 10.0,
        waiting: int = 48,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_change` is told how many claims are prepared, `on_prepared` each that is new,
        `on_lost` when an entry is missed that a CDI file says there was.

        `patience`: seconds that one call waits for the holders of its devices to end. They are
        usually about to; the kubelet would ask again only after a minute. `waiting`: so many
        calls may do so at once. The others are told at once, since each waits in a worker of the
        kubelet's server, and what they wait for needs one too.
        """
        self._identity = identity
        self._hardware = hardware
        self._reader = ClaimReader(api, served)
        self._ledger = ledger
        self._lost = LostEntries(
            FactFinder(
                identity=identity,
                hardware=hardware,
                ledger=ledger,
                cdi=cdi,
                driver_root=driver_root,
                library=partitions,
            ),
            ledger,
            instances=partitions.instances,
            on_lost=on_lost,
        )
        self._handout = Handout(
            identity=identity,
            hardware=hardware,
            ledger=ledger,
            cdi=cdi,
            driver_root=driver_root,
            partitions=partitions,
            lost=self._lost,
            on_change=on_change,
            on_prepared=on_prepared,
        )
        self._locks = locks
        self._turns = turns
        self._health = health
        self._patience = patience
        self._clock = clock
        self._released = threading.Condition()
        self._places = threading.BoundedSemaphore(waiting)
        self._releases = 0

    def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[ClaimUID, PrepareAnswer]:
        deadline = Deadline.after(_CALL, self._clock)
        return {ref.uid: self._prepare_one(ref, deadline) for ref in claims}

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[ClaimUID, UnprepareAnswer]:
        deadline = Deadline.after(_CALL, self._clock)
        return {ref.uid: self._unprepare_one(ref, deadline) for ref in claims}

    @contextmanager
    def _turn(self, ref: ClaimRef, deadline: Deadline, *, by: str) -> Iterator[None]:
        """ClaimError where none of the call's time is left for this claim."""
        if not (left := deadline.left()):
            raise ClaimError(
                f"{by}: not begun, the other claims of this call took {_CALL:.0f} s;"
                " it is tried again"
            )
        with self._turns.held(ref.uid, by=by, patience=left):
            yield

    def _prepare_one(self, ref: ClaimRef, deadline: Deadline) -> PrepareAnswer:
        try:
            with self._turn(ref, deadline, by=f"prepare of claim {ref}"):
                entry = self._serve(ref, deadline)
        except (ClaimError, StateError, NvmlError) as error:
            log.warning("claim not prepared", claim=str(ref), reason=str(error))
            return Failure(message=str(error))
        if entry is None:
            return ()
        log.info("claim prepared", claim=str(ref), devices=[h.device for h in entry.holdings])
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

    def _serve(self, ref: ClaimRef, deadline: Deadline) -> Entry | None:
        """What the claim holds then; None where nothing of it is ours."""
        claim = self._reader.read(ref)
        driver, pool = self._identity.driver, self._identity.pool
        results = own_results(claim, uid=ref.uid, driver=driver)
        if not results:
            return None
        inventory = self._hardware.inventory
        if inventory is None:
            raise ClaimError(
                f"claim {ref}: the GPUs of this node cannot be used yet: {self._hardware.problem}"
            )
        known = self._ledger.entries().get(ref.uid)
        for unread in self._ledger.unread().values():
            raise StateTooNew(f"claim {ref}: {unread}")
        if known is None:
            found = known_claim(claim, driver=driver, pool=pool)
            known = self._found_again(ref, found, deadline, by=f"prepare of claim {ref}")
        else:
            known = self._named(known, claim)
        if (
            known is not None
            and answers(known, results, boot_id=self._identity.boot_id)
            and self._handout.is_whole(known, inventory)
        ):
            return known
        intent = read_intent(claim, uid=ref.uid, driver=driver, pool=pool, inventory=inventory)
        self._check_health(intent)
        gpus = {*intent.gpus, *(known.gpus if known else ())}
        return self._hand_out_when_free(intent, gpus, inventory, deadline)

    def _found_again(
        self, ref: ClaimRef, claim: KnownClaim | None, deadline: Deadline, *, by: str
    ) -> Entry | None:
        """The entry of a claim, where the ledger has lost it and its CDI file has not."""
        if (gpus := self._lost.gpus(ref.uid)) is None:
            return None
        with self._locks.held(gpus, by=by, patience=deadline.left()):
            entry = self._lost.entry(ref.uid, claim)
            if entry is not None:
                self._handout.hold(entry)
        return entry

    def _check_health(self, intent: Intent) -> None:
        """A claim that was prepared before keeps what it has; a new one gets nothing that is sick.
        Admin access is for those who look into it.
        """
        if self._health is None:
            return
        wanted = [w.device for w in intent.wanted if not w.admin_access]
        if sick := self._health.refusal((d.name, d.gpu.uuid) for d in wanted):
            raise ClaimError(f"claim {intent.namespace}/{intent.name}: {sick}")
        self._health.make_way(intent.gpus)

    def _named(self, known: Entry, claim: ResourceClaim) -> Entry:
        """What recovery could make again only in part is whole now that its claim is known."""
        found = known_claim(claim, driver=self._identity.driver, pool=self._identity.pool)
        whole = named(known, found)
        if whole != known:
            self._ledger.put(whole)
        return whole

    def _hand_out_when_free(
        self, intent: Intent, gpus: Collection[GpuUuid], inventory: Inventory, deadline: Deadline
    ) -> Entry:
        """The request to the API is over: what is under a GPU's lock concerns that GPU alone.
        `gpus`: also those of a former allocation, which is taken apart.
        """
        name = f"claim {intent.namespace}/{intent.name}"
        while True:
            with self._released:
                releases = self._releases
            with self._locks.held(gpus, by=name, patience=deadline.left()):
                given = self._handout.give(intent, inventory, deadline)
            if isinstance(given, Entry):
                return given
            if not self._wait_for_release(releases, deadline):
                raise ClaimError(f"{name}: {given.reason}")

    def _wait_for_release(self, seen: int, deadline: Deadline) -> bool:
        """Until a claim was released since `seen`, or it is time to look what others released;
        False when patience is over, or too many wait already.
        """
        if not (left := deadline.left(of=self._patience)):
            return False
        if not self._places.acquire(blocking=False):
            return False
        try:
            with self._released:
                self._released.wait_for(lambda: self._releases != seen, min(left, _LOOK_AGAIN))
        finally:
            self._places.release()
        return True

    def _unprepare_one(self, ref: ClaimRef, deadline: Deadline) -> UnprepareAnswer:
        """From what is here alone: the claim may be gone from the API. Unknown claims succeed."""
        try:
            with self._turn(ref, deadline, by=f"unprepare of claim {ref}"):
                known = self._take_back(ref, deadline)
        except (StateError, ClaimError, NvmlError) as error:
            log.warning("claim not unprepared", claim=str(ref), reason=str(error))
            return Failure(message=f"claim {ref}: {error}")
        log.info("claim unprepared", claim=str(ref), known=known)
        return None

    def _take_back(self, ref: ClaimRef, deadline: Deadline) -> bool:
        """Whether we knew the claim."""
        entry = self._ledger.entries().get(ref.uid)
        if unread := self._ledger.unread().get(ref.uid):
            raise StateTooNew(unread)
        by = f"unprepare of claim {ref}"
        if entry is None:
            entry = self._found_again(ref, None, deadline, by=by)
        with self._locks.held(entry.gpus if entry else (), by=by, patience=deadline.left()):
            self._handout.take_back(ref.uid, entry, deadline)
        with self._released:
            self._releases += 1
            self._released.notify_all()
        return entry is not None
