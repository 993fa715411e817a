"""A node's claims, its recovery, and everything that may befall them, in any order.

What holds at every moment: no slot is held twice, nor given to a second claim while the first may
run; foreign instances stay; a running claim keeps its devices and its file, and its entry unless
that is what is lost. What holds at the end: of claims that are gone nothing is left.
"""

from __future__ import annotations

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from driver.core.errors import KubeUnavailable
from driver.core.ids import ClaimUID
from driver.core.ledger import conflict
from driver.core.snapshot import InstanceFacts
from driver.ports.kubelet import ClaimRef
from tests.data.mig_boards import H100
from tests.plugin.nodes import partition
from tests.plugin.recovering import GRACE, Node
from tests.plugin.stubs import claim, device, gpu

CHOICES = (
    (partition(0, "1g.10gb", 0),),
    (partition(0, "1g.10gb", 1),),
    (partition(0, "3g.40gb", 4),),
    (device(1),),
    (partition(1, "2g.20gb", 2),),
    (partition(0, "1g.10gb", 0), partition(1, "2g.20gb", 2)),
    (device(0), partition(1, "2g.20gb", 2)),
)
FOREIGN_START = 2


class Life(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.node = Node()
        self.boots = 1
        self.number = 0
        self.claims: dict[ClaimRef, tuple[str, ...]] = {}
        self.running: dict[ClaimRef, dict[str, str]] = {}
        """By claim, the UUID of each device that its container was told, and that is there."""
        self.lost: set[ClaimUID] = set()
        """Claims whose entry was lost, and not made again since."""
        self.ghosts: dict[ClaimRef, dict[str, str]] = {}
        """The same of claims that were deleted by force."""
        self.since: dict[ClaimRef, float] = {}
        """When they were."""
        self.foreign: list[InstanceFacts] = []

    @initialize(foreign=st.booleans())
    def somebody_cuts_by_hand(self, foreign: bool) -> None:
        if foreign:
            uuid, profile = gpu(0).uuid, H100.profile("1g.10gb")
            self.node.mig.on.add(uuid)
            self.node.mig.create(uuid, profile, profile.placements[FOREIGN_START])
            self.foreign = list(self.node.instances())

    @rule(chosen=st.sampled_from(CHOICES), started=st.booleans())
    def allocate(self, chosen: tuple[str, ...], started: bool) -> None:
        """As a scheduler does: a device, or a whole GPU and its parts, to one claim at a time."""
        if any(overlap(chosen, devices) for devices in self.claims.values()):
            return
        self.number += 1
        ref = self.node.add(claim(f"c{self.number}", *chosen))
        self.claims[ref] = chosen
        if started:
            self.prepare()

    @precondition(lambda self: self.claims)
    @rule()
    def prepare(self) -> None:
        """The kubelet asks for all of them, again or for the first time."""
        for ref in self.claims:
            answer = self.node.prepare(ref)
            if not isinstance(answer, tuple):
                assert ref not in self.running or self.node.api.failure, answer
                continue
            assert tuple(d.device for d in answer) == self.claims[ref]
            for ghost, devices in self.ghosts.items():
                if overlap(tuple(devices), self.claims[ref]):
                    assert self.node.now - self.since[ghost] >= GRACE
            now = {str(h.device): h.uuid for h in self.node.entries()[ref.uid].holdings}
            known = self.running.setdefault(ref, {})
            assert known.items() <= now.items()
            known.update(now)
            self.lost.discard(ref.uid)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        ref = data.draw(st.sampled_from(list(self.running)))
        assert self.node.unprepare(ref) == ""
        self.running.pop(ref)
        self.lost.discard(ref.uid)
        self._delete(ref)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def vanish(self, data: st.DataObject) -> None:
        """Deleted by force; the kubelet never says so."""
        ref = data.draw(st.sampled_from(list(self.claims)))
        if ref in self.running:
            self.ghosts[ref], self.since[ref] = self.running.pop(ref), self.node.now
        self._delete(ref)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        """An entry, while the plugin runs; its CDI file is there."""
        ref = data.draw(st.sampled_from(list(self.running)))
        if self.node.ledger.kept.pop(ref.uid, None):
            self.lost.add(ref.uid)

    @rule()
    def reset(self) -> None:
        """The second GPU, with all partitions. Nothing runs on them any more."""
        uuid = gpu(1).uuid
        self.node.mig.held[uuid].clear()
        self.node.mig.on.discard(uuid)
        parts = f"{device(1)}-mig-"
        for devices in (*self.running.values(), *self.ghosts.values()):
            for name in [n for n in devices if n.startswith(parts)]:
                del devices[name]

    @rule(lost=st.sampled_from(["nothing", "ledger", "files"]))
    def restart(self, lost: str) -> None:
        if lost == "ledger":
            self.node.ledger.kept.clear()
        elif lost == "files":
            for uid in self.node.cdi.claims() - self.lost:
                self.node.cdi.remove(uid)
        self._start()
        # Of what a reset took nothing says whose it was.
        self.lost = {ref.uid for ref in self.running} - self.node.entries().keys()

    @rule(what=st.sampled_from(["api", "api", "time", "grace", "reboot"]))
    def befall(self, what: str) -> None:
        if what == "api":
            away = self.node.api.failure is None
            self.node.api.failure = KubeUnavailable("away", what="get") if away else None
        elif what == "reboot":
            self._reboot()
        else:
            self.node.after(GRACE if what == "grace" else 1.0)

    def _reboot(self) -> None:
        self.boots += 1
        self.node.mig.held.clear()
        self.node.mig.on.clear()
        self.node.cdi.specs.clear()
        self.foreign, self.running, self.ghosts = [], {}, {}
        self.lost.clear()
        self._start()

    def _start(self) -> None:
        failure, now = self.node.api.failure, self.node.now
        self.node = Node(boot=f"boot-{self.boots}", of=self.node)
        self.node.api.failure, self.node.now = failure, now
        self.node.recovery.begin()

    def _delete(self, ref: ClaimRef) -> None:
        self.node.delete(ref)
        del self.claims[ref]

    @invariant()
    def no_slot_is_held_twice(self) -> None:
        entries = self.node.entries()
        assert not any(conflict(entry, entries.values()) for entry in entries.values())

    @invariant()
    def what_is_foreign_stays(self) -> None:
        assert all(each in self.node.instances() for each in self.foreign)

    @invariant()
    def a_running_claim_keeps_what_it_has(self) -> None:
        entries, files = self.node.entries(), self.node.cdi.claims()
        present = {c.uuid for held in self.node.mig.held.values() for i in held for c in i.compute}
        for ref, told in self.running.items():
            assert ref.uid in files
            assert present >= {u for name, u in told.items() if "-mig-" in name}
            if ref.uid in entries:
                now = {h.device: h.uuid for h in entries[ref.uid].holdings}
                assert told.items() <= now.items()
            else:
                assert ref.uid in self.lost or not told

    def teardown(self) -> None:
        self.node.api.failure = None
        for _ in range(3):
            self.node.after(GRACE)
        alive = {ref.uid for ref in self.claims}
        assert self._known() <= alive
        explained = {(gpu(0).uuid, i.placement.start) for i in self.foreign} | {
            (h.gpu, h.slot.start)
            for e in self.node.entries().values()
            for h in e.holdings
            if h.slot is not None and e.boot_id == f"boot-{self.boots}"
        }
        there = {(g, i.placement.start) for g, held in self.node.mig.held.items() for i in held}
        assert there <= explained

    def _known(self) -> set[ClaimUID]:
        return set(self.node.entries()) | set(self.node.cdi.claims())


def overlap(some: tuple[str, ...], others: tuple[str, ...]) -> bool:
    """Whether they have a device in common, or one has a whole GPU and the other a part of it."""
    return any(
        a == b or a.startswith(f"{b}-mig-") or b.startswith(f"{a}-mig-")
        for a in some
        for b in others
    )


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
