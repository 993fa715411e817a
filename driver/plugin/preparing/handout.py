"""Gives a claim its devices and takes them back, in an order that is safe at every step.

Giving: ledger (started), hardware, CDI file, ledger (completed). A claim that changes no hardware
has one ledger write. A crash leaves either nothing that anybody was told of, or a complete claim;
what was started is taken up by the next attempt. Taking back is the reverse.

The caller has the claim's turn and the locks of its GPUs. Must not know the API.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from driver.core.bind import Crowded, bind, recall, unbound
from driver.core.cdi import build_spec
from driver.core.claims import Intent
from driver.core.errors import ClaimError, NvmlError
from driver.core.ids import ClaimUID, DeviceName, GpuUuid
from driver.core.inventory import Inventory
from driver.core.ledger import (
    Entry,
    Phase,
    alone,
    conflict,
    entry_for,
    made_anew,
    still_wanted,
    with_made,
)
from driver.core.prepare import MakePartition, plan_steps
from driver.core.snapshot import InstanceFacts
from driver.observe.logs import Log
from driver.plugin.node import Hardware, Identity
from driver.plugin.preparing.deadline import Deadline
from driver.plugin.preparing.lost import LostEntries
from driver.plugin.preparing.partitions import Partitions, Unfinished
from driver.ports.state import CdiStore, DriverRoot, Ledger, partitions_of

log = Log(__name__)


class Handout:
    def __init__(
        self,
        *,
        identity: Identity,
        hardware: Hardware,
        ledger: Ledger,
        cdi: CdiStore,
        driver_root: DriverRoot,
        partitions: Partitions,
        lost: LostEntries,
        on_change: Callable[[int], None],
        on_prepared: Callable[[Entry], None],
    ) -> None:
        """`on_change` is told how many claims are prepared, `on_prepared` each that is new."""
        self._identity = identity
        self._hardware = hardware
        self._ledger = ledger
        self._cdi = cdi
        self._driver_root = driver_root
        self._partitions = partitions
        self._lost = lost
        self._on_change = on_change
        self._on_prepared = on_prepared
        on_change(len(ledger.entries()))

    def give(self, intent: Intent, inventory: Inventory, deadline: Deadline) -> Entry | Crowded:
        """What the claim holds then; or why it cannot be had before another claim has ended."""
        entries = self._ledger.entries()
        placed = self._place(intent, entries)
        if isinstance(placed, Crowded):
            return placed
        identity = self._identity
        wanted = entry_for(placed, pool=identity.pool, boot_id=identity.boot_id)
        if held := conflict(wanted, entries.values()):
            return Crowded(held)
        self._lost.check(wanted)
        known = entries.get(wanted.uid)
        if known is not None and not still_wanted(known, wanted):
            # Its file names what is not the claim's any more.
            self._cdi.remove(known.uid)
            if known.boot_id == wanted.boot_id:
                self._take_apart(known, deadline)
            known = None
        # Otherwise an earlier attempt, or a claim whose partitions are gone since.
        entry = self._make(placed, wanted, known, inventory, deadline)
        self._write_cdi(entry, inventory)
        self._ledger.put(entry)
        self._on_change(len(self._ledger.entries()))
        self._on_prepared(entry)
        return entry

    def is_whole(self, entry: Entry, inventory: Inventory) -> bool:
        """Whether all that the claim was given is there, its file restored where it was not."""
        if gone := self._partitions.gone(entry):
            log.warning("partitions are gone, made anew", claim=entry.uid, devices=gone)
            return False
        if self._write_cdi(entry, inventory):
            log.warning("CDI file was missing or altered, restored", claim=entry.uid)
        return True

    def hold(self, entry: Entry) -> None:
        """Take up an entry that was lost."""
        self._ledger.put(entry)
        self._on_change(len(self._ledger.entries()))
        log.warning("ledger entry was lost, made again", claim=entry.uid)

    def take_back(self, uid: ClaimUID, entry: Entry | None, deadline: Deadline) -> None:
        """The file goes in any case: without an entry nothing of what it names is there."""
        self._cdi.remove(uid)
        if entry is not None:
            self._take_apart(entry, deadline)

    def _take_apart(self, entry: Entry, deadline: Deadline) -> None:
        """Hardware, then the entry. After a reboot there is nothing of it on the hardware."""
        if entry.boot_id == self._identity.boot_id:
            ours = alone(entry, self._ledger.entries().values())
            self._partitions.within(deadline).release(ours, switchable=self._switchable)
        self._ledger.remove(entry.uid)
        self._on_change(len(self._ledger.entries()))

    def _place(self, intent: Intent, entries: Mapping[ClaimUID, Entry]) -> Intent | Crowded:
        """With a start for each partition whose start is left to us."""
        boot = self._identity.boot_id
        intent = recall(intent, entries.get(intent.uid), boot_id=boot)
        there = {gpu: self._partitions.instances(gpu) for gpu in unbound(intent)}
        return bind(intent, entries.values(), there, boot_id=boot)

    def _make(
        self,
        intent: Intent,
        wanted: Entry,
        known: Entry | None,
        inventory: Inventory,
        deadline: Deadline,
    ) -> Entry:
        """The entry, with what was made for it. The intent is on disk before the first step. Of a
        claim that was given its devices, those that are there are left alone: a pod may use them.
        """
        partitions = self._partitions.within(deadline)
        left = partitions.left(known) if known is not None and known.may_run else frozenset()
        steps, begun = plan_steps(intent, left=left), made_anew(wanted, known, left)
        if any(isinstance(step, MakePartition) for step in steps):
            if known is None or known.phase is Phase.COMPLETED:
                partitions.check(
                    steps, known=known, lost=lambda step, at: self._check_owner(step, at, inventory)
                )
            self._ledger.put(begun)
        try:
            made = partitions.realise(steps, adopt=known is not None)
        except Unfinished:
            raise
        except (ClaimError, NvmlError):
            self._undone(wanted.uid, known, left)
            raise
        entry = replace(begun, phase=Phase.COMPLETED, given=False)
        for device, instance in made.items():
            entry = with_made(entry, device, instance)
        return entry

    def _undone(self, uid: ClaimUID, known: Entry | None, left: frozenset[DeviceName]) -> None:
        """The hardware is as it was before."""
        if known is not None and left:
            if known.phase is Phase.COMPLETED:
                self._ledger.put(known)
            return
        # What was written down does not exist, nor what the file of it names. A file without an
        # entry is all that is left of a lost one, and recovery needs it.
        if known is not None:
            self._cdi.remove(uid)
        self._ledger.remove(uid)

    def _check_owner(self, step: MakePartition, at: InstanceFacts, inventory: Inventory) -> None:
        """ClaimError where the instance is that of a claim whose entry was lost."""
        geometry = inventory.gpus[step.gpu].mig.geometry
        names = {p.id: p.name for p in geometry.profiles} if geometry else {}
        owner = self._lost.owner(step.gpu, at, names.get(at.profile_id, ""))
        if owner is not None:
            instance = f"GPU instance {at.id} on GPU {step.gpu}"
            raise self._lost.refusal(f"device {step.device}", instance, owner)

    def _write_cdi(self, entry: Entry, inventory: Inventory) -> bool:
        """Whether the file had to be written."""
        lost = [uuid for uuid in entry.gpus if uuid not in inventory.gpus]
        if lost:
            raise ClaimError(
                f"claim {entry.namespace}/{entry.name}: GPU {lost[0]} does not answer now;"
                " see the plugin's log and nvidia-smi"
            )
        gpus = {uuid: inventory.gpus[uuid] for uuid in entry.gpus}
        partitions = partitions_of(entry, gpus)
        files = self._driver_root.files(tuple(gpus.values()), partitions)
        return self._cdi.ensure(entry.uid, build_spec(entry, files))

    def _switchable(self, gpu: GpuUuid) -> bool:
        """Whether MIG mode may be left without a reset."""
        inventory = self._hardware.inventory
        facts = inventory.gpus.get(gpu) if inventory else None
        return facts is not None and facts.mig.switchable
