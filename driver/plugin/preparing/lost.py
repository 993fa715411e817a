"""Claims of which a CDI file is all that is left: the ledger has lost their entry.

Why it exists: such a claim has its devices all the same, and pods may run on them. Until recovery
has made the entry again nobody else may get them, and its own calls must neither drop the last
trace of it nor make anything twice.

The caller has the claim's turn, and the locks of the GPUs that it asks about. Must not know the
kubelet or the API.
"""

from __future__ import annotations

from collections.abc import Callable

from driver.core.errors import ClaimError, StateTooNew
from driver.core.ids import ClaimUID, GpuUuid
from driver.core.ledger import Entry
from driver.core.recovery import Rebuild, repair_of
from driver.core.recovery_rebuild import CdiFile, KnownClaim, find_devices, named_by
from driver.core.snapshot import InstanceFacts
from driver.plugin.recovering.facts import FactFinder
from driver.ports.state import Ledger


class LostEntries:
    """`on_lost` is told of each entry that somebody missed: recovery should look soon."""

    def __init__(
        self,
        facts: FactFinder,
        ledger: Ledger,
        *,
        instances: Callable[[GpuUuid], tuple[InstanceFacts, ...]],
        on_lost: Callable[[], None],
    ) -> None:
        self._facts = facts
        self._ledger = ledger
        self._instances = instances
        self._on_lost = on_lost

    def gpus(self, uid: ClaimUID) -> tuple[GpuUuid, ...] | None:
        """Of a claim without an entry, whose locks `entry` needs; None where it has no file that
        says so either.
        """
        file = self._facts.file(uid)
        return None if file.devices is None else self._facts.gpus_of(uid, {}, {uid: file})

    def entry(self, uid: ClaimUID, claim: KnownClaim | None) -> Entry | None:
        """What the claim holds; None where nothing of it is left. ClaimError where that cannot be
        told now. `claim`: as the API has it; None where it ends.
        """
        for unread in self._ledger.unread().values():
            raise StateTooNew(unread)
        facts = self._facts.find({uid: claim}, released_for={}, grace=0.0, only=uid)
        repair = repair_of(uid, facts)
        if isinstance(repair, Rebuild):
            return repair.entry
        devices = facts.files[uid].devices if uid in facts.files else None
        silent = devices is not None and find_devices(devices, facts.gpus) is None
        if silent or (claim is None and devices is not None and repair is None):
            self._on_lost()
            why = "a GPU of it does not answer" if silent else "another claim's file names the same"
            raise ClaimError(
                f"the ledger has lost its entry, and its CDI file names {', '.join(devices or ())}:"
                f" what of it is there cannot be told now, as {why}; this is tried again"
            )
        return None

    def check(self, wanted: Entry) -> None:
        """ClaimError where a whole GPU that `wanted` needs is another claim's by its CDI file."""
        gpus = {h.gpu for h in wanted.holdings if not h.admin_access}
        for uid, file in self._files().items():
            for gpu in gpus & set((file.devices or {}).values()) if uid != wanted.uid else ():
                if not self._instances(GpuUuid(gpu)):
                    raise self.refusal("the claim", f"GPU {gpu}", uid)

    def owner(self, gpu: GpuUuid, instance: InstanceFacts, profile: str) -> ClaimUID | None:
        """Whose this instance of `profile` is by a CDI file."""
        return named_by(gpu, instance, profile, self._files())

    def refusal(self, what: str, device: str, claim: ClaimUID) -> ClaimError:
        """A pod may use the device; so nobody is told to destroy it."""
        self._on_lost()
        return ClaimError(
            f"{what}: {device} is claim {claim}'s by its CDI file, and the ledger has lost that"
            " entry; recovery makes it again (the plugin's log says where it cannot), leave the"
            " device as it is; this is tried again"
        )

    def _files(self) -> dict[ClaimUID, CdiFile]:
        return self._facts.files_without(self._ledger.entries().keys())
