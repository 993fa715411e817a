"""Long random lives of a node: the scheduler's search on one side, published orders on the other.

What is checked here does not use the core's own idea of room: slots are kept in a bitmap for each
GPU, and engines are summed up from the profiles.
"""

import random
from collections import defaultdict

import pytest

from driver.core.layout import lay_out
from driver.core.occupancy import NOTHING, Partition, Whole
from driver.core.packing import Policy, make_order
from driver.core.rerank import rerank
from tests.data.mig_boards import A30, A100_40, B200, BOARDS, H100, RTX_PRO_6000, every_profile
from tests.property.firstfit import WHOLE, Publisher, Scheduler
from tests.unit.core.given_mig import mixed, node

SEQUENCES, EVENTS, PARTS = 200, 1_000, 20
ENGINES = ("compute_slices", "decoders", "encoders", "jpeg", "ofa")


class Hardware:
    """What runs on each GPU, and whether one more can. A full GPU takes every slot."""

    def __init__(self, boards):
        self.boards = {b.uuid: b for b in boards}
        self.masks = dict.fromkeys(self.boards, 0)
        self.running = defaultdict(list)

    def room(self, uuid, profile):
        """Whether the GPU can hold one more of `profile`, at any start."""
        offer = self.boards[uuid].offer
        if offer is None or all(p.name != profile for p in offer.profiles):
            return False
        masks = (p.mask for p in offer.geometry.profile(profile).placements)
        return any(not m & self.masks[uuid] for m in masks) and self._engines(uuid, profile)

    def add(self, ref):
        mask = self._mask(ref)
        assert not mask & self.masks[ref.gpu], f"{ref} overlaps what runs on its GPU"
        if isinstance(ref, Partition):
            assert self._engines(ref.gpu, ref.profile), f"{ref} has no engines left"
            self.running[ref.gpu].append(ref.profile)
        self.masks[ref.gpu] |= mask

    def remove(self, ref):
        self.masks[ref.gpu] &= ~self._mask(ref)
        if isinstance(ref, Partition):
            self.running[ref.gpu].remove(ref.profile)

    def _mask(self, ref):
        offer = self.boards[ref.gpu].offer
        if isinstance(ref, Whole):
            return offer.geometry.all_slots if offer else 1
        return offer.geometry.profile(ref.profile).mask(ref.start)

    def _engines(self, uuid, profile):
        geometry = self.boards[uuid].offer.geometry
        added = geometry.profile(profile)
        if self.running[uuid].count(profile) >= added.max_instances:
            return False
        if not added.is_variant and not any("+" in n for n in self.running[uuid]):
            return True
        largest = max(geometry.profiles, key=lambda p: (p.size, not p.is_variant))
        together = [added, *map(geometry.profile, self.running[uuid])]
        return all(sum(getattr(p, e) for p in together) <= getattr(largest, e) for e in ENGINES)


class Life:
    """One node from empty on. `lag`: how many events the published order may be behind."""

    def __init__(self, boards, policy, seed, lag=0):
        self.random = random.Random(seed)
        self.boards, self.policy, self.lag = boards, policy, lag
        self.plans = {p.what: p for p in lay_out(boards, make_order(boards, NOTHING, policy))}
        self.positions = {what: n for n, what in enumerate(self.plans)}
        self.scheduler = Scheduler(Publisher(boards), [*self.plans.values()])
        self.hardware = Hardware(boards)
        kinds = [p.name for b in boards if b.offer for p in b.offer.profiles]
        self.kinds = [*dict.fromkeys(kinds), WHOLE]
        self.weights = [self.random.random() ** 2 for _ in self.kinds]
        self.ending = self.random.uniform(0.35, 0.5)
        self.behind = 0

    def live(self, events):
        for _ in range(events):
            if self.scheduler.allocated and self.random.random() < self.ending:
                ended = self.random.choice([*self.scheduler.allocated])
                self.hardware.remove(self.scheduler.end(ended))
            else:
                self.allocate(self.random.choices(self.kinds, self.weights)[0])
            self.behind += 1
            if self.behind > self.random.randint(0, self.lag):
                self.publish()
        self.check_slices()

    def allocate(self, kind):
        ref = self.scheduler.allocate(kind)
        if ref is None:
            assert not self.could(kind), f"{kind} was refused although there is room"
            return
        if self.policy is Policy.PACKED and not self.behind:
            self.check_packed(ref)
        self.hardware.add(ref)

    def could(self, kind):
        if kind == WHOLE:
            return 0 in self.hardware.masks.values()
        return any(self.hardware.room(uuid, kind) for uuid in self.hardware.masks)

    def check_packed(self, ref):
        masks = self.hardware.masks
        if isinstance(ref, Whole):
            assert ref.gpu == [uuid for uuid, mask in masks.items() if not mask][-1]
        elif not masks[ref.gpu]:
            used = [uuid for uuid, mask in masks.items() if mask]
            missed = [uuid for uuid in used if self.hardware.room(uuid, ref.profile)]
            assert not missed, f"{ref} opened an idle GPU although {missed} can hold it"

    def check_slices(self):
        """Where a device is never changes, and an order that was just renewed stands."""
        self.publish()
        assert not rerank([*self.plans.values()], self.boards, self.scheduler.live, self.policy)
        begin = lay_out(self.boards, make_order(self.boards, NOTHING, self.policy))
        assert [(p.what, set(p.devices)) for p in self.plans.values()] == [
            (p.what, set(p.devices)) for p in begin
        ]

    def publish(self):
        self.behind = 0
        state = self.scheduler.live
        for plan in rerank([*self.plans.values()], self.boards, state, self.policy):
            self.plans[plan.what] = plan
            self.scheduler.replace(self.positions[plan.what], plan)


@pytest.mark.parametrize("part", range(PARTS))
def test_a_packed_node_opens_an_idle_gpu_only_where_no_used_one_can_hold_the_claim(part):
    """Eight GPUs, order renewed after each event; every allocation is placed without overlap."""
    for seed in range(part, SEQUENCES, PARTS):
        Life(node(8), Policy.PACKED, seed).live(EVENTS)


FLEETS = {
    **{name: node(3, board, every_profile(board)) for name, board in BOARDS.items()},
    "mixed": mixed(
        H100, A30, None, RTX_PRO_6000, A100_40, listed=["1g.10gb", "2g.12gb", "2g.48gb"]
    ),
    "two pairs": mixed(H100, B200, H100, B200),
}


@pytest.mark.parametrize("boards", FLEETS.values(), ids=FLEETS)
def test_so_do_other_boards_with_all_their_variants(boards):
    for seed in range(3):
        Life(boards, Policy.PACKED, seed).live(500)


@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize("boards", [node(16), FLEETS["RTX-PRO-6000"]], ids=["two groups", "RTX"])
def test_a_stale_order_costs_packing_and_never_a_placement(boards, policy):
    for seed in range(4):
        Life(boards, policy, seed, lag=8).live(400)


def test_a_distributed_node_uses_every_gpu_before_it_uses_one_twice():
    for seed in range(20):
        life = Life(node(8), Policy.DISTRIBUTED, seed, lag=seed % 4)
        kind = life.random.choice(life.kinds[:-1])
        for _ in range(8):
            life.allocate(kind)
            if life.lag == 0:
                life.publish()
        assert all(life.hardware.masks.values())
