"""What is kept of the cluster's claims, and what is told of their changes."""

from __future__ import annotations

from typing import Any

import pytest

from driver.core.ids import DeviceName, PoolName
from driver.kube.store import Store
from driver.plugin.publishing.allocations import Allocations, Moved, trim
from driver.ports.kube import Added, Deleted, JsonObject, Listing, Modified
from tests.plugin.stubs import DRIVER, POOL, claim


def allocated(name: str, *devices: str, version: int = 1, **more: Any) -> JsonObject:
    made = claim(name, *devices, **more)
    made["metadata"] |= {"resourceVersion": str(version), "labels": {"team": "a"}}
    return made


def trimmed(obj: JsonObject) -> JsonObject | None:
    return trim(obj, driver=DRIVER, pool=PoolName(POOL))


@pytest.mark.parametrize(
    "obj",
    [
        {"metadata": {"name": "a"}, "spec": {}},
        {"metadata": {"name": "a"}, "status": {"allocation": {}}},
        {"metadata": {"name": "a"}, "status": {"allocation": {"devices": {"results": None}}}},
        allocated("a", "gpu-0", driver="nic.example.com"),
        allocated("a", "gpu-0", pool="node-2/tessera"),
        allocated("a", "gpu-0", adminAccess=True),
    ],
    ids=["new", "empty", "nothing", "other driver", "other node", "admin access"],
)
def test_claims_that_take_nothing_of_this_pool_are_not_kept(obj: JsonObject) -> None:
    assert trimmed(obj) is None


def test_of_the_others_only_their_identity_and_their_devices_are_kept() -> None:
    assert trimmed(allocated("a", "gpu-0", "gpu-1")) == {
        "metadata": {
            "name": "a",
            "namespace": "default",
            "uid": "uid-a",
            "resourceVersion": "1",
        },
        "devices": ("gpu-0", "gpu-1"),
    }


def moved(*, released: tuple[str, ...] = (), taken: tuple[str, ...] = ()) -> Moved:
    return Moved(released=tuple(map(DeviceName, released)), taken=tuple(map(DeviceName, taken)))


class Followed:
    """Allocations behind a store that is fed as a reflector does."""

    def __init__(self) -> None:
        self.store = Store()
        self.heard = 0
        self.ended: list[str] = []
        self.allocations = Allocations()
        self.allocations.follow(self.store, on_change=self._hear)  # type: ignore[arg-type]
        self.allocations.subscribe_ends(self.ended.append)

    def _hear(self) -> None:
        self.heard += 1

    def listed(self, *objects: JsonObject, version: int = 1) -> None:
        items = tuple(kept for o in objects if (kept := trimmed(o)))
        self.store.replace(Listing(items=items, version=str(version)))

    def modified(self, obj: JsonObject) -> None:
        kept = trimmed(obj)
        self.store.feed(Deleted(obj) if kept is None else Modified(kept))


def test_before_the_first_list_nothing_is_known() -> None:
    assert not Allocations().wait_synced(0)
    assert Allocations().take() == ((), frozenset())
    followed = Followed()
    assert not followed.allocations.wait_synced(0)
    followed.listed(allocated("a", "gpu-0"))
    assert followed.allocations.wait_synced(0)
    assert followed.allocations.take() == ((moved(taken=("gpu-0",)),), frozenset({"gpu-0"}))


def test_each_allocation_and_each_release_is_told_once() -> None:
    followed = Followed()
    followed.listed()
    followed.modified(allocated("a", "gpu-0", version=2))
    followed.modified(allocated("b", "gpu-1", "gpu-2", version=3))
    followed.modified({**allocated("a", version=4), "status": {}})
    moves, held = followed.allocations.take()
    assert held == {"gpu-1", "gpu-2"}
    assert moves == (
        moved(taken=("gpu-0",)),
        moved(taken=("gpu-1", "gpu-2")),
        moved(released=("gpu-0",)),
    )
    assert followed.allocations.take() == ((), held)
    assert followed.heard == 3


def test_changes_that_move_no_device_are_not_told() -> None:
    followed = Followed()
    followed.listed(allocated("a", "gpu-0"))
    followed.allocations.take()
    followed.modified(allocated("a", "gpu-0", version=2))
    followed.store.feed(Added({"metadata": {"name": "x", "resourceVersion": "3"}, "devices": ()}))
    assert followed.allocations.take() == ((), frozenset({"gpu-0"}))
    assert followed.heard == 1


def test_what_a_broken_watch_missed_is_told_by_the_next_list() -> None:
    followed = Followed()
    followed.listed(allocated("a", "gpu-0"), allocated("b", "gpu-1"))
    followed.allocations.take()
    followed.listed(allocated("b", "gpu-1"), allocated("c", "gpu-2", version=5), version=6)
    moves, held = followed.allocations.take()
    assert moves == (moved(released=("gpu-0",)), moved(taken=("gpu-2",)))
    assert held == {"gpu-1", "gpu-2"}


def test_each_claim_that_ends_or_loses_its_devices_is_told_by_its_uid() -> None:
    followed = Followed()
    followed.listed(*(allocated(n, f"gpu-{n}") for n in "abcd"))
    followed.modified(allocated("a", "gpu-a", version=2))
    assert followed.ended == []
    followed.store.feed(Deleted(allocated("a", "gpu-a", version=3)))
    followed.modified({**allocated("b", version=4), "status": {}})
    followed.modified(allocated("c", "gpu-9", version=5, uid="uid-next"))
    followed.listed(version=6)
    assert followed.ended == ["uid-a", "uid-b", "uid-c", "uid-d", "uid-next"]
