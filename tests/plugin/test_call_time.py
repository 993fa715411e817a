"""One call, one account of time: whatever its claims wait for, the kubelet gets its answer."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

from driver.core.errors import InUse
from driver.core.ids import ClaimUID, GpuUuid
from driver.plugin.preparing import claims
from driver.plugin.preparing.deadline import Deadline
from driver.plugin.preparing.gpu_locks import GpuLocks
from driver.plugin.preparing.turns import Turns
from driver.ports.kube import JsonObject, Resource
from driver.ports.kubelet import Failure, PrepareAnswer
from driver.state.thread_locks import ThreadLocks
from tests.plugin.mig import error
from tests.plugin.nodes import MigNode, partition
from tests.plugin.stubs import ClaimsApi, claim, gpu


class Slow(ClaimsApi):
    """Each claim is read for 20 seconds, on a clock of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0

    def get(self, resource: Resource, name: str, *, namespace: str = "") -> JsonObject:
        self.now += 20
        return super().get(resource, name, namespace=namespace)


def slow_node() -> tuple[MigNode, Slow]:
    node = MigNode()
    node.api = api = Slow()
    node = MigNode(of=node)
    node.claims._clock = lambda: api.now
    return node, api


def failures(answers: Mapping[ClaimUID, PrepareAnswer]) -> list[str]:
    return [a.message for a in answers.values() if isinstance(a, Failure)]


def test_claims_that_do_not_get_their_turn_in_time_are_told_and_served_by_the_next_call() -> None:
    node, _ = slow_node()
    refs = [node.add(claim(f"c{n}", partition(0, "1g.10gb", n))) for n in range(4)]
    answers = node.claims.prepare(refs)
    late = failures(answers)
    assert list(answers) == [r.uid for r in refs]
    assert len(late) == len(node.instances()) == 2
    assert all("not begun" in said and "tried again" in said for said in late)
    assert late[0].startswith(f"prepare of claim {refs[2]}")
    again = node.claims.prepare(refs[2:])
    assert not failures(again)


def test_the_same_holds_for_the_end_of_claims() -> None:
    node, api = slow_node()
    refs = [node.add(claim(f"c{n}", partition(0, "1g.10gb", n))) for n in range(2)]
    for ref in refs:
        node.prepare(ref)
    destroy = node.mig.destroy

    def slowly(gpu: GpuUuid, instance: int) -> None:
        api.now += 36
        destroy(gpu, instance)

    node.mig.destroy = slowly  # type: ignore[method-assign]
    first, second = node.claims.unprepare(refs).values()
    assert first is None
    assert isinstance(second, Failure)
    assert "not begun" in second.message
    assert list(node.claims.unprepare(refs).values()) == [None, None]


@pytest.mark.parametrize("held", ["the turns of its claims", "their GPU"])
def test_what_is_held_by_others_is_waited_for_once_and_not_once_for_each_claim(
    held: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "_CALL", 0.3)
    node, locks = MigNode(), ThreadLocks()
    node.claims._turns, node.claims._locks = Turns(locks), GpuLocks(locks)
    refs = [node.add(claim(f"c{n}", partition(0, "1g.10gb", n))) for n in range(4)]
    names = [f"claim {r.uid}" for r in refs] if held.startswith("the turns") else []
    for name in names or [f"gpu {gpu(0).uuid}"]:
        locks.take(name, by="somebody", patience=0)
    begun = time.monotonic()
    said = failures(node.claims.prepare(refs))
    assert time.monotonic() - begun < 5
    assert len(said) == len(refs)
    assert "busy with somebody" in said[0]
    assert all("not begun" in each for each in said[1:])


def test_a_partition_in_use_is_waited_for_only_as_long_as_the_call_has_time() -> None:
    node, api = slow_node()
    ref = node.add(claim("a", partition(0, "1g.10gb", 0)))
    node.prepare(ref)
    node.mig.fail = {
        ("destroy_compute", n): error(InUse, "destroy_compute", 19) for n in range(1, 99)
    }
    deadline = Deadline.after(1.0, lambda: api.now)
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        api.now += seconds

    partitions = node.claims._handout._partitions
    partitions._wait = wait
    lock = node.claims._locks.held([gpu(0).uuid], by="the test", patience=0)
    with lock, pytest.raises(InUse):
        partitions.within(deadline).release(node.entries()[ref.uid], switchable=lambda _: True)
    assert sum(waited) == 1.0
