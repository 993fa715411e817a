"""What is in use, what is about to be free, and whether each allocation was the policy's choice."""

from __future__ import annotations

from dataclasses import replace

from driver.core.choices import DEFAULT
from driver.core.ids import ClaimUID, DeviceName
from driver.core.inventory import build_inventory
from driver.core.ledger import Entry
from driver.core.occupancy import Live
from driver.plugin.publishing.follower import Follower, InUse
from tests.data.mig_boards import H100
from tests.plugin.nodes import mig_gpu, mig_snapshot, partition
from tests.plugin.stubs import DRIVER
from tests.plugin.test_allocations import Followed, allocated
from tests.unit.core.given import entry
from tests.unit.core.given_mig import live

TWO = build_inventory(mig_snapshot(mig_gpu(0), mig_gpu(1)))
ONE_G = partition(0, "1g.10gb", 6)
THREE_G = partition(0, "3g.40gb", 0)


class Node:
    """Claims as the API server tells of them, and the ledger."""

    def __init__(self) -> None:
        self.claims = Followed()
        self.claims.listed()
        self.entries: dict[ClaimUID, Entry] = {}
        self.judged: list[bool] = []
        self.version = 1
        self.inventory = TWO
        self.follower = Follower(
            self.claims.allocations,
            DEFAULT,
            entries=lambda: self.entries,
            driver=DRIVER,
            boot_id="boot-1",
            metrics=self,
        )
        self.look()

    def allocated(self, *, as_chosen: bool) -> None:
        self.judged.append(as_chosen)

    def take(self, name: str, *devices: str) -> None:
        self.version += 1
        self.claims.modified(allocated(name, *devices, version=self.version))

    def prepare(self, name: str, *devices: str) -> None:
        made = entry(name, TWO, *devices)
        self.entries[made.uid] = made

    def look(self) -> InUse:
        return self.follower.look(self.inventory, (), {})

    def soon(self) -> Live:
        return self.look().soon


def test_what_the_kubelet_gave_back_is_expected_to_be_free_until_it_is() -> None:
    node = Node()
    node.take("a", ONE_G)
    assert node.soon() == live("0:1g.10gb@6")
    node.prepare("a", ONE_G)
    assert node.soon() == live("0:1g.10gb@6")
    node.entries.clear()
    assert node.look() == InUse(
        live=live("0:1g.10gb@6"), soon=live(), devices=frozenset({DeviceName(ONE_G)}), taints={}
    )
    assert node.soon() == live()
    node.take("a")
    assert node.look() == InUse(live=live(), soon=live(), devices=frozenset(), taints={})


def test_a_claim_that_is_prepared_again_stays() -> None:
    node = Node()
    node.take("a", ONE_G)
    node.prepare("a", ONE_G)
    node.look()
    node.entries.clear()
    node.look()
    node.prepare("a", ONE_G)
    assert node.soon() == live("0:1g.10gb@6")


def test_what_another_claim_gets_after_it_is_not_expected_to_be_free() -> None:
    node = Node()
    node.take("a", ONE_G)
    node.prepare("a", ONE_G)
    node.look()
    node.entries.clear()
    node.look()
    node.take("a")
    node.take("b", ONE_G)
    assert node.soon() == live("0:1g.10gb@6")


def test_allocations_are_judged_in_the_order_of_events() -> None:
    node = Node()
    node.take("a", THREE_G)
    node.take("a")
    node.take("b", ONE_G)
    node.take("c", partition(1, "1g.10gb", 6))
    assert node.look().behind == 4
    assert node.judged == [False, True, False]


def test_a_driver_update_that_renames_profiles_is_judged_by_what_stood_before_it() -> None:
    node = Node()
    node.take("a", THREE_G)
    node.look()
    profiles = (replace(p, name=p.name.replace("3g.40gb", "3g.48gb")) for p in H100.profiles)
    renamed = replace(H100, profiles=tuple(profiles))
    gpus = (replace(g, mig=replace(g.mig, geometry=renamed)) for g in map(mig_gpu, range(2)))
    node.inventory = build_inventory(mig_snapshot(*gpus))
    node.take("b", ONE_G)
    node.look()
    assert node.judged == [False, True]
    node.take("c", partition(1, "3g.48gb", 4))
    node.look()
    assert node.judged == [False, True, True]


def test_events_that_come_one_by_one_leave_nobody_behind() -> None:
    node = Node()
    node.take("a", ONE_G)
    assert node.look().behind == 0
    assert node.judged == [True]
