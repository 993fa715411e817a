"""Whatever comes and goes: with a safe set, what the sums admit has a place when it is prepared."""

from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from driver.core.bind import Crowded, bind, recall, unbound
from driver.core.boards import Binding, check_binding
from driver.core.choices import Choices
from driver.core.claims import Intent, Wanted
from driver.core.devices import LatePartition
from driver.core.ids import ClaimUID, DeviceName, GpuUuid
from driver.core.inventory import Inventory, build_inventory
from driver.core.ledger import Entry, conflict, entry_for
from driver.core.live import live_state
from driver.core.occupancy import can_take, states
from driver.core.snapshot import MigState
from tests.data.mig_boards import A30, A100_80, H100, RTX_PRO_6000
from tests.unit.core.given import POOL, gpu, snapshot

SAFE = [
    *((H100, (p, "1g.10gb+me", "7g.80gb")) for p in ("1g.10gb", "1g.20gb", "2g.20gb")),
    (A100_80, ("3g.40gb", "1g.10gb+me", "7g.80gb")),
    (H100, ("4g.40gb", "1g.10gb+me")),
    (A30, ("1g.6gb", "4g.24gb")),
    (A30, ("2g.12gb",)),
    (RTX_PRO_6000, ("1g.24gb",)),
]
IDS = [", ".join(profiles) for _, profiles in SAFE]


class Node:
    """Allocation by the sums alone, in any order of the devices; preparation later, or never."""

    def __init__(self, here: Inventory, seed: int) -> None:
        self.here = here
        self.random = Random(seed)
        self.allocated: dict[ClaimUID, tuple[DeviceName, ...]] = {}
        self.ledger: dict[ClaimUID, Entry] = {}
        self.boot = "boot-0"
        self.claims = 0

    def kind(self, name: DeviceName) -> str:
        device = self.here.devices[name]
        return device.profile.name if isinstance(device, LatePartition) else "whole"

    def free(self, kind: str) -> list[DeviceName]:
        taken = [d for devices in self.allocated.values() for d in devices]
        now = states(self.here.boards, live_state(self.here, taken, [], []))
        rooms = {b.uuid: (b, s) for b, s in zip(self.here.boards, now, strict=True)}
        return [
            name
            for name, d in self.here.devices.items()
            if self.kind(name) == kind and can_take(*rooms[d.gpu.uuid], d.ref)
        ]

    def allocate(self) -> None:
        self.claims += 1
        kind = self.random.choice(sorted({self.kind(name) for name in self.here.devices}))
        devices: list[DeviceName] = []
        for _ in range(self.random.choice([1, 1, 2])):
            if free := self.free(kind):
                devices.append(self.random.choice(free))
                self.allocated[ClaimUID(f"c{self.claims}")] = tuple(devices)

    def prepare(self) -> None:
        uid = self.random.choice(sorted(self.allocated))
        wanted = tuple(
            Wanted(request="r", device=self.here.devices[d]) for d in self.allocated[uid]
        )
        before = self.ledger.get(uid)
        intent = Intent(namespace="n", name=uid, uid=uid, wanted=wanted)
        intent = recall(intent, before, boot_id=self.boot)
        there = dict.fromkeys(unbound(intent), ())
        placed = bind(intent, self.ledger.values(), there, boot_id=self.boot)
        assert not isinstance(placed, Crowded), placed
        entry = entry_for(placed, pool=POOL, boot_id=self.boot)
        assert conflict(entry, self.ledger.values()) == ""
        if before is not None and before.boot_id == self.boot:
            assert entry == before
        self.ledger[uid] = entry

    def unprepare(self) -> None:
        """And mostly give back; but a claim may be prepared again, for another pod."""
        uid = self.random.choice(sorted(self.ledger))
        del self.ledger[uid]
        if self.random.random() < 0.8:
            del self.allocated[uid]

    def step(self) -> None:
        [self.allocate, self.prepare, self.unprepare][
            self.random.choices(range(3), [4, 5 * bool(self.allocated), 3 * bool(self.ledger)])[0]
        ]()
        if self.random.random() < 0.005:
            self.boot = f"boot-{int(self.boot[5:]) + 1}"

    def check(self) -> None:
        taken: dict[GpuUuid, int] = {}
        for entry in self.ledger.values():
            for held in entry.holdings:
                if entry.boot_id == self.boot:
                    slots = held.mask & (1 << 12) - 1
                    assert not taken.get(held.gpu, 0) & slots
                    taken[held.gpu] = taken.get(held.gpu, 0) | slots


@pytest.fixture(scope="module")
def inventories() -> list[Inventory]:
    """Made once: to show that a set is safe takes longer than to play with it."""
    made = []
    for board, profiles in SAFE:
        choices = Choices(profiles=profiles, binding=Binding.PREPARE)
        mig = MigState(capable=True, switchable=True, geometry=board)
        here = build_inventory(snapshot(gpu(1, mig=mig), gpu(2, mig=mig)), choices)
        check_binding(here.boards, Binding.PREPARE)
        made.append(here)
    return made


@pytest.mark.parametrize("number", range(len(SAFE)), ids=IDS)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=10)
def test_what_a_safe_set_admits_always_has_a_place(inventories, number, seed):
    node = Node(inventories[number], seed)
    for _ in range(150):
        node.step()
        node.check()
    assert node.claims > 20
