"""Whatever kubelet, users, administrators and failures do, in any order: the node keeps its word.

The model knows what was promised and what was told; the real use cases run over memory.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from driver.core.devices import EVERY_SLOT
from driver.core.errors import KubeUnavailable, NvmlError
from driver.core.geometry import MigProfile, Placement
from driver.core.ids import GpuUuid
from driver.core.ledger import Phase, conflict
from driver.ports.kubelet import ClaimRef, Failure, PrepareAnswer
from tests.data.mig_boards import H100
from tests.plugin.mig import error
from tests.plugin.nodes import partition
from tests.plugin.recovering import Node
from tests.plugin.stubs import claim, device, gpu

GPUS = [gpu(0).uuid, gpu(1).uuid]
PLACES = [
    (profile, place)
    for profile in map(H100.profile, ("1g.10gb", "3g.40gb"))
    for place in profile.placements
    if place.start in {0, 4, 5}
]
"""Few, so that they meet often."""
CALLS = ["mode", "set_mode", "instances", "create", "create_compute", "destroy_compute", "destroy"]
Slots = tuple[GpuUuid, int, int]
"""GPU, start, size."""


class Crash(BaseException):
    """The process is gone."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of lines about failures that are meant to be."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@dataclass
class Pod:
    """`answer`: what the kubelet has been told and its containers run with. `live`: the claim is in
    the API. `over`: the kubelet was told that nothing is left.
    """

    ref: ClaimRef
    gpu: GpuUuid
    mask: int
    answer: PrepareAnswer | None = None
    live: bool = True
    over: bool = False


class ClaimsMachine(RuleBasedStateMachine):
    """Names in `pods` are of pods that the kubelet knows."""

    names = Bundle("names")

    def __init__(self) -> None:
        super().__init__()
        self.node = Node()
        self.pods: dict[str, Pod] = {}
        self.foreign: dict[Slots, str] = {}
        self.boots = 1
        self.made = 0

    # -- users and the scheduler

    @rule(
        target=names,
        number=st.integers(0, 1),
        what=st.sampled_from([None, *PLACES]),
    )
    def allocate(self, number: int, what: tuple[MigProfile, Placement] | None) -> object:
        """Never what the scheduler knows to be taken."""
        mask = what[1].mask if what else EVERY_SLOT
        if any(p.live and p.gpu == GPUS[number] and p.mask & mask for p in self.pods.values()):
            return multiple()
        self.made += 1
        name = f"pod-{self.made}"
        found = partition(number, what[0].name, what[1].start) if what else device(number)
        ref = self.node.add(claim(name, found))
        self.pods[name] = Pod(ref=ref, gpu=GPUS[number], mask=mask)
        return name

    @rule(name=names)
    def delete_by_force(self, name: str) -> None:
        """The claim is gone, the container runs on; the scheduler may give its device away."""
        pod = self.pods[name]
        if pod.live:
            pod.live = False
            self.node.delete(pod.ref)
        for holding in self._holdings(pod):
            instance = holding.slot.made.instance if holding.slot and holding.slot.made else None
            self.node.mig.running[holding.gpu, instance] = 1

    @rule(
        target=names,
        number=st.integers(0, 1),
        what=st.sampled_from([None, *PLACES]),
    )
    def run(self, number: int, what: tuple[MigProfile, Placement] | None) -> object:
        """As most pods begin."""
        name = self.allocate(number, what)
        if isinstance(name, str):
            self.prepare(name)
        return name

    # -- the kubelet

    @rule(name=names)
    def prepare(self, name: str) -> None:
        pod = self.pods[name]
        taken = self._taken(pod)
        answer = self.node.prepare(pod.ref)
        if isinstance(answer, Failure):
            if taken and pod.ref.uid not in self.node.entries():
                # It could not be made anew, which was undone as a whole.
                assert pod.ref.uid not in self.node.cdi.specs
                pod.answer = None
            return
        assert pod.answer in {None, answer}, "the same claim is answered otherwise"
        assert pod.live, "prepared after its claim was gone"
        pod.answer, pod.over = answer, False

    @rule(name=names)
    def unprepare(self, name: str) -> None:
        """The containers have ended; a call that failed is made again."""
        pod = self.pods[name]
        self._containers_end(pod)
        pod.answer = None
        pod.over = self.node.unprepare(pod.ref) == ""

    @rule(name=consumes(names))
    def end(self, name: str) -> None:
        """The pod and its claim are gone for good; the kubelet has seen to it."""
        pod = self.pods[name]
        self._containers_end(pod)
        self.node.mig.fail.clear()
        assert self.node.unprepare(pod.ref) == ""
        if pod.live:
            self.node.delete(pod.ref)
        del self.pods[name]
        assert pod.ref.uid not in self.node.entries()

    # -- the node

    @rule(
        what=st.sampled_from(["restart", "reboot", "fail", "look", "look", "away", "back"]),
        call=st.sampled_from(CALLS),
        nth=st.integers(1, 3),
        seconds=st.sampled_from([1.0, 60.0, 130.0]),
    )
    def happens(self, what: str, call: str, nth: int, seconds: float) -> None:
        match what:
            case "restart":
                self.restart()
            case "reboot":
                self.reboot()
            case "fail":
                self.fail_soon(call, nth)
            case "look":
                self.node.after(seconds)
            case _:
                away = KubeUnavailable("away", what="get") if what == "away" else None
                self.node.api.failure = away

    def restart(self) -> None:
        self._start()

    def reboot(self) -> None:
        self.boots += 1
        self.node.mig.held.clear()
        self.node.mig.on.clear()
        self.node.mig.running.clear()
        self.node.cdi.specs.clear()
        self.foreign.clear()
        for pod in self.pods.values():
            pod.answer = None
        self._start()

    @rule(name=names, call=st.sampled_from(CALLS), nth=st.integers(1, 3), back=st.booleans())
    def crash(self, name: str, call: str, nth: int, back: bool) -> None:
        """Inside a call of the kubelet."""
        pod, mig = self.pods[name], self.node.mig
        mig.fail = {(call, mig.calls.count(call) + nth): Crash()}  # type: ignore[dict-item]
        try:
            if back:
                self.unprepare(name)
            else:
                self.prepare(name)
        except Crash:
            pod.over = False
        mig.fail.clear()
        self._start()

    def fail_soon(self, call: str, nth: int) -> None:
        mig = self.node.mig
        mig.fail = {(call, mig.calls.count(call) + nth): error(NvmlError, call, 999)}

    # -- others on the node

    @rule(
        what=st.sampled_from(["reset", "reset and cut", "cut", "uncut"]),
        number=st.integers(0, 1),
        place=st.sampled_from(PLACES),
        again=st.booleans(),
        data=st.data(),
    )
    def others_do(
        self,
        what: str,
        number: int,
        place: tuple[MigProfile, Placement],
        again: bool,
        data: st.DataObject,
    ) -> None:
        """`again`: whose containers died of it is started again at once."""
        if not self.node.mig.held[GPUS[number]]:
            number = 1 - number
        match what:
            case "reset":
                self.reset(number)
            case "reset and cut":
                self.reset_and_cut_the_same(number)
            case "cut":
                self.cut(number, place)
            case "uncut" if self.foreign:
                self.uncut(data.draw(st.sampled_from(sorted(self.foreign))))
            case _:
                assert not self.foreign
        for name in self.pods if again else ():
            self.prepare(name)

    def reset(self, number: int) -> None:
        """Takes all partitions, and the containers with them."""
        uuid = GPUS[number]
        self.node.mig.held[uuid].clear()
        for key in [k for k in self.node.mig.running if k[0] == uuid]:
            del self.node.mig.running[key]
        self.foreign = {k: v for k, v in self.foreign.items() if k[0] != uuid}

    def reset_and_cut_the_same(self, number: int) -> None:
        """As a tool does that applies its layout again."""
        there = [(i.profile_id, i.placement) for i in self.node.mig.held[GPUS[number]]]
        self.reset(number)
        for profile_id, place in there:
            self.cut(number, next((p, place) for p in H100.profiles if p.id == profile_id))

    def cut(self, number: int, what: tuple[MigProfile, Placement]) -> None:
        """Not where a preparation has begun: what is there passes for its own. Where a reset took
        what a claim runs with, it may be.
        """
        uuid, (profile, place) = GPUS[number], what
        mig, there = self.node.mig, self.node.mig.held[GPUS[number]]
        begun = [e for e in self._present() if e.phase is Phase.STARTED]
        held = [h for e in begun for h in e.holdings if h.gpu == uuid]
        if any(h.mask & place.mask for h in held):
            return
        if any(i.placement.mask & place.mask for i in there):
            return
        mig.fail.clear()
        mig.on.add(uuid)
        instance = mig.create(uuid, profile, place)
        self.foreign[uuid, place.start, place.size] = mig.create_compute(uuid, instance).uuid

    def uncut(self, place: Slots) -> None:
        theirs = self.foreign.pop(place)
        held = self.node.mig.held[place[0]]
        held.remove(next(i for i in held if theirs in {c.uuid for c in i.compute}))

    # -- what holds at any time

    @invariant()
    def nothing_is_given_twice(self) -> None:
        present = self._present()
        for number, entry in enumerate(present):
            assert conflict(entry, present[:number]) == ""

    @invariant()
    def every_instance_is_somebodys(self) -> None:
        ours = {
            (h.gpu, h.slot.start, h.slot.size)
            for e in self._present()
            for h in e.holdings
            if h.slot
        }
        there = {
            (uuid, i.placement.start, i.placement.size): [c.uuid for c in i.compute]
            for uuid in GPUS
            for i in self.node.mig.held[uuid]
        }
        for place, theirs in self.foreign.items():
            assert there.get(place) == [theirs], "destroyed, but not ours"
        assert there.keys() <= ours | self.foreign.keys()

    @invariant()
    def what_was_promised_is_there(self) -> None:
        for pod in self.pods.values():
            if pod.over:
                assert pod.ref.uid not in self.node.entries()
                assert pod.ref.uid not in self.node.cdi.specs
            if pod.answer is None or not pod.live:
                continue
            entry = self.node.entries()[pod.ref.uid]
            assert entry.phase is Phase.COMPLETED or self._taken(pod)
            for holding in self._holdings(pod):
                if holding.slot is None or self._taken(pod):
                    continue
                assert holding.slot.made is not None
                assert holding.uuid in str(self.node.cdi.specs[pod.ref.uid])

    def teardown(self) -> None:
        """Everything ends: only what others made is left."""
        self.node.mig.fail.clear()
        self.node.mig.running.clear()
        self.node.api.failure = None
        for pod in self.pods.values():
            assert self.node.unprepare(pod.ref) == ""
            if pod.live:
                self.node.delete(pod.ref)
        for _ in range(2):
            self.node.after(130.0)
        assert (self.node.entries(), self.node.cdi.specs) == ({}, {})
        for uuid in GPUS:
            left = {(uuid, i.placement.start, i.placement.size) for i in self.node.mig.held[uuid]}
            assert left == {place for place in self.foreign if place[0] == uuid}

    # --

    def _start(self) -> None:
        self.node = Node(boot=f"boot-{self.boots}", of=self.node)
        self.node.recovery.begin()

    def _present(self):
        boot = f"boot-{self.boots}"
        return [e for e in self.node.entries().values() if e.boot_id == boot]

    def _holdings(self, pod: Pod):
        entry = self.node.entries().get(pod.ref.uid)
        return entry.holdings if entry and entry.boot_id == f"boot-{self.boots}" else ()

    def _taken(self, pod: Pod) -> bool:
        """Whether somebody's reset took what it runs with; the kubelet does not know."""
        there = {c.uuid for i in self.node.mig.held[pod.gpu] for c in i.compute}
        return any(h.slot is not None and h.uuid not in there for h in self._holdings(pod))

    def _containers_end(self, pod: Pod) -> None:
        for holding in self._holdings(pod):
            instance = holding.slot.made.instance if holding.slot and holding.slot.made else None
            self.node.mig.running.pop((holding.gpu, instance), None)


@pytest.mark.timeout(1800)
def test_the_node_keeps_its_word_in_any_order_of_events() -> None:
    run_state_machine_as_test(
        ClaimsMachine, settings=settings(max_examples=1500, stateful_step_count=60)
    )
