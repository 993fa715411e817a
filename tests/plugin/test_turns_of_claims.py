"""Calls for one claim that overlap, come late, or find other settings than before."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace

import pytest

from driver.core.choices import Choices
from driver.core.errors import GpuLost
from driver.core.ids import ClaimUID
from driver.core.inventory import build_inventory
from driver.ports.kube import JsonObject, Resource
from driver.ports.kubelet import Failure
from tests.plugin.mig import error
from tests.plugin.nodes import MigNode, mig_gpu, mig_snapshot, partition
from tests.plugin.stubs import ClaimsApi, claim, device, gpu


class SlowApi(ClaimsApi):
    """Answers a GET only when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.answer = threading.Event(), threading.Event()

    def get(self, resource: Resource, name: str, *, namespace: str = "") -> JsonObject:
        found = super().get(resource, name, namespace=namespace)
        self.asked.set()
        assert self.answer.wait(10)
        return found


def test_an_unprepare_that_overtakes_a_prepare_waits_for_it_and_leaves_nothing():
    before = MigNode()
    before.api = SlowApi()
    node = MigNode(of=before)
    ref = node.add(claim("a", partition(0, "1g.10gb", 0)))
    with ThreadPoolExecutor(2) as pool:
        preparing = pool.submit(node.prepare, ref)
        assert before.api.asked.wait(10)
        ending = pool.submit(node.unprepare, ref)
        assert not wait([ending], timeout=0.1).done
        before.api.answer.set()
        assert isinstance(preparing.result(10), tuple)
        assert ending.result(10) == ""
    assert not node.entries()
    assert not node.cdi.specs
    assert node.instances() == []


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (None, "does not exist any more"),
        ({"status": {}}, "is not allocated"),
        ({"status": {"allocation": {}, "reservedFor": []}}, "is reserved for no pod"),
        ({"metadata": {"name": "a", "namespace": "default", "uid": "next"}}, "was replaced"),
    ],
)
@pytest.mark.parametrize("released", [True, False], ids=["after its unprepare", "before it"])
def test_a_prepare_that_comes_after_the_end_of_its_claim_makes_nothing_anew(now, said, released):
    """The tombstone: what counts is what the API says in the claim's turn."""
    node = MigNode()
    obj = claim("a", partition(0, "1g.10gb", 0))
    ref = node.add(obj)
    node.prepare(ref)
    if released:
        assert node.unprepare(ref) == ""
    before = dict(node.entries())
    if now is None:
        node.api.claims.clear()
    else:
        node.api.claims["default", "a"] = {**obj, **now}
    assert said in node.error(ref)
    assert node.entries() == before
    assert len(node.instances()) == len(before)


def other_settings(node: MigNode) -> None:
    """Another set of profiles: the device of the claim is not offered any more."""
    offered = Choices(profiles=("7g.80gb",))
    node.hardware.found(build_inventory(mig_snapshot(mig_gpu(0), mig_gpu(1)), offered))


def test_a_claim_that_is_prepared_is_answered_whatever_the_node_offers_by_now():
    node = MigNode()
    ref = node.add(claim("a", partition(0, "1g.10gb", 0)))
    first, files = node.prepare(ref), dict(node.cdi.specs)
    other_settings(node)
    assert node.prepare(ref) == first
    node.cdi.specs.clear()
    assert node.prepare(ref) == first
    assert node.cdi.specs == files
    assert "is not on this node" in node.error(node.add(claim("b", partition(0, "1g.10gb", 1))))
    assert node.unprepare(ref) == ""
    assert node.instances() == []


def test_a_claim_with_another_allocation_than_its_entry_is_not_answered_from_it():
    node = MigNode()
    ref = node.add(claim("a", partition(0, "1g.10gb", 0)))
    node.prepare(ref)
    node.add(claim("a", partition(0, "1g.10gb", 3)))
    answer = node.prepare(ref)
    assert isinstance(answer, tuple)
    assert [d.device for d in answer] == [partition(0, "1g.10gb", 3)]
    assert [i.placement.start for i in node.instances()] == [3]


def test_a_prepared_claim_whose_gpu_is_lost_is_not_given_a_file_without_it():
    node = MigNode()
    ref = node.add(claim("a", device(1)))
    node.prepare(ref)
    node.hardware.found(build_inventory(mig_snapshot(mig_gpu(0))))
    assert f"GPU {gpu(1).uuid} does not answer now" in node.error(ref)
    node.mig.fail["instances", 1] = error(GpuLost, "instances", 15)
    assert node.unprepare(ref) == ""


def test_nothing_is_handed_out_while_an_entry_of_a_later_version_is_in_the_ledger():
    node = MigNode()
    kept, new = node.add(claim("kept", device(0))), node.add(claim("new", device(1)))
    node.prepare(kept)
    node.ledger.newer[ClaimUID("uid-later")] = "uid-later.json has ledger version 2"
    assert "uid-later.json has ledger version 2" in node.error(new)
    assert node.unprepare(kept) == ""
    later = replace(kept, uid=ClaimUID("uid-later"))
    assert "uid-later.json has ledger version 2" in node.unprepare(later)
    node.ledger.newer.clear()
    assert not isinstance(node.prepare(new), Failure)
