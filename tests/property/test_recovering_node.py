"""A node's claims, its recovery, and everything that may befall them, in any order.

What holds at every moment: no slot is held twice, foreign instances stay, a running claim keeps its
partition, its entry and its file. What holds at the end: of claims that are gone nothing is left.
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

DEVICES = (
    partition(0, "1g.10gb", 0),
    partition(0, "1g.10gb", 1),
    partition(0, "3g.40gb", 4),
    device(1),
    partition(1, "2g.20gb", 2),
)
FOREIGN_START = 2


class Life(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.node = Node()
        self.boots = 1
        self.number = 0
        self.claims: dict[ClaimRef, str] = {}
        self.running: dict[ClaimRef, str] = {}
        """By claim, the UUID that its container was told."""
        self.foreign: list[InstanceFacts] = []

    @initialize(foreign=st.booleans())
    def somebody_cuts_by_hand(self, foreign: bool) -> None:
        if foreign:
            uuid, profile = gpu(0).uuid, H100.profile("1g.10gb")
            self.node.mig.on.add(uuid)
            self.node.mig.create(uuid, profile, profile.placements[FOREIGN_START])
            self.foreign = list(self.node.instances())

    @rule(chosen=st.sampled_from(DEVICES), started=st.booleans())
    def allocate(self, chosen: str, started: bool) -> None:
        """As a scheduler does: a device, or a whole GPU and its parts, to one claim at a time."""
        parent = chosen.partition("-mig-")[0]
        if any(d in (chosen, parent) or (chosen == parent and d.startswith(parent))
               for d in self.claims.values()):  # fmt: skip
            return
        self.number += 1
        ref = self.node.add(claim(f"c{self.number}", chosen))
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
            assert [d.device for d in answer] == [self.claims[ref]]
            (holding,) = self.node.entries()[ref.uid].holdings
            assert self.running.setdefault(ref, holding.uuid) == holding.uuid

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        ref = data.draw(st.sampled_from(list(self.running)))
        assert self.node.unprepare(ref) == ""
        del self.running[ref]
        self._delete(ref)

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def vanish(self, data: st.DataObject) -> None:
        """Deleted by force; the kubelet never says so."""
        ref = data.draw(st.sampled_from(list(self.claims)))
        self._delete(ref)
        self.running.pop(ref, None)

    @rule(lost=st.sampled_from(["nothing", "ledger", "files"]))
    def restart(self, lost: str) -> None:
        if lost == "ledger":
            self.node.ledger.kept.clear()
        elif lost == "files":
            self.node.cdi.specs.clear()
        self._start()

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
        self.foreign, self.running = [], {}
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
        for ref, uuid in self.running.items():
            (holding,) = entries[ref.uid].holdings
            assert (holding.uuid, ref.uid in files) == (uuid, True)
            if holding.slot and holding.slot.made:
                there = self.node.mig.held[holding.gpu]
                assert any(c.uuid == holding.uuid for i in there for c in i.compute)

    def teardown(self) -> None:
        self.node.api.failure = None
        for _ in range(3):
            self.node.after(GRACE)
        alive = {ref.uid for ref in self.claims}
        assert self._known() <= alive
        explained = len(self.foreign) + sum(
            h.slot is not None and e.boot_id == f"boot-{self.boots}"
            for e in self.node.entries().values()
            for h in e.holdings
        )
        assert sum(len(self.node.instances(n)) for n in (0, 1)) == explained

    def _known(self) -> set[ClaimUID]:
        return set(self.node.entries()) | set(self.node.cdi.claims())


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
