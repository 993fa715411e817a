"""Claims for partitions: what is written when, and what a failure or a crash leaves."""

from __future__ import annotations

import pytest

from driver.core.errors import GpuLost, NvmlError
from driver.core.ids import ClaimUID
from driver.core.ledger import Phase
from driver.core.snapshot import InstanceFacts
from driver.ports.kubelet import ClaimRef
from tests.data.mig_boards import H100
from tests.plugin.mig import error
from tests.plugin.nodes import MigNode, partition
from tests.plugin.stubs import claim, device, gpu

SMALL, LARGE = partition(0, "1g.10gb", 0), partition(0, "3g.40gb", 4)


def foreign(node: MigNode, profile: str, start: int = 0) -> InstanceFacts:
    """Somebody else cuts GPU 0."""
    node.mig.on.add(gpu(0).uuid)
    found = H100.profile(profile)
    place = next(p for p in found.placements if p.start == start)
    number = node.mig.create(gpu(0).uuid, found, place)
    node.mig.create_compute(gpu(0).uuid, number)
    return next(i for i in node.instances() if i.id == number)


def test_partitions_are_made_and_the_same_answer_is_given_again_without_a_change() -> None:
    node = MigNode()
    ref = node.add(claim("a", SMALL, LARGE))
    first = node.prepare(ref)
    assert isinstance(first, tuple)
    assert [d.device for d in first] == [SMALL, LARGE]
    held = node.entries()[ref.uid]
    assert (held.phase, [h.uuid for h in held.holdings]) == (Phase.COMPLETED, ["MIG-1", "MIG-2"])
    done, puts = len(node.mig.calls), node.ledger.puts
    assert node.prepare(ref) == first
    assert set(node.mig.calls[done:]) == {"instances"}
    assert node.ledger.puts == puts
    assert node.prepared == [held]


def test_a_partition_that_a_reset_took_is_made_anew_under_the_same_name() -> None:
    node = MigNode()
    ref = node.add(claim("a", SMALL, LARGE))
    first = node.prepare(ref)
    node.mig.held.clear()
    node.mig.on.clear()
    assert node.prepare(ref) == first
    held = node.entries()[ref.uid]
    assert (held.phase, [h.uuid for h in held.holdings]) == (Phase.COMPLETED, ["MIG-3", "MIG-4"])
    assert "TESSERA_DEVICES=MIG-3,MIG-4" in str(node.cdi.specs[ref.uid])
    assert len(node.instances()) == 2


def test_what_others_made_at_the_place_after_a_reset_is_not_ours() -> None:
    node = MigNode()
    ref = node.add(claim("a", SMALL, LARGE))
    first = node.prepare(ref)
    (small,) = [i for i in node.instances() if i.placement.start == 0]
    node.instances().remove(small)
    other = foreign(node, "1g.10gb")
    assert "GPU instance 1 that Tessera did not make" in node.error(ref)
    assert other in node.instances()
    node.instances().remove(other)
    assert node.prepare(ref) == first
    assert len(node.instances()) == 2


def test_the_container_is_told_the_partitions_and_gets_their_capability_nodes() -> None:
    node = MigNode()
    ref = node.add(claim("a", SMALL, LARGE))
    node.prepare(ref)
    spec = str(node.cdi.specs[ref.uid])
    assert "TESSERA_DEVICES=MIG-1,MIG-2" in spec
    assert "nvidia-cap1" in spec
    assert "nvidia-cap2" in spec


def test_what_is_about_to_be_made_is_written_down_before_the_hardware_is_touched() -> None:
    node = MigNode()
    ref = node.add(claim("a", SMALL))
    node.ledger.broken = "no space left"
    assert "no space left" in node.error(ref)
    assert {"set_mode", "create"}.isdisjoint(node.mig.calls)


def test_an_ended_claim_leaves_nothing() -> None:
    node = MigNode()
    ref = node.add(claim("a", SMALL, LARGE))
    node.prepare(ref)
    assert node.unprepare(ref) == ""
    assert (node.instances(), node.mig.on, node.ledger.kept, node.cdi.specs) == ([], set(), {}, {})


@pytest.mark.parametrize("call", ["mode", "set_mode", "create", "create_compute"])
def test_a_failed_claim_leaves_nothing_and_may_simply_be_asked_for_again(call: str) -> None:
    node = MigNode()
    ref = node.add(claim("a", SMALL, LARGE))
    node.mig.fail = {(call, 1): error(NvmlError, call, 999)}
    assert "NVML code 999" in node.error(ref)
    assert (node.instances(), node.mig.on, node.ledger.kept, node.cdi.specs) == ([], set(), {}, {})
    assert isinstance(node.prepare(ref), tuple)


def test_what_could_not_be_taken_back_stays_written_down_until_it_is() -> None:
    node = MigNode()
    ref = node.add(claim("a", SMALL))
    node.mig.fail = {
        ("create_compute", 1): error(NvmlError, "create_compute", 999),
        ("destroy", 1): error(GpuLost, "destroy", 15),
    }
    assert f"clears what is left of {SMALL}" in node.error(ref)
    assert node.entries()[ref.uid].phase is Phase.STARTED
    assert f"still held by claim default/a ({ref.uid})" in node.error(node.add(claim("b", SMALL)))
    assert node.unprepare(ref) == ""
    assert (node.instances(), node.mig.on, node.ledger.kept) == ([], set(), {})


def test_missing_driver_files_keep_the_partition_for_the_next_attempt() -> None:
    node = MigNode()
    ref = node.add(claim("a", SMALL))
    node.root.missing = "nvidia-caps is not there"
    assert "nvidia-caps is not there" in node.error(ref)
    assert node.entries()[ref.uid].phase is Phase.STARTED
    node.root.missing = ""
    assert isinstance(node.prepare(ref), tuple)
    assert len(node.instances()) == 1
    assert node.unprepare(ref) == ""
    assert node.instances() == []


class Crash(BaseException):
    """The process is gone."""


def crashed(ref_of: str = SMALL) -> tuple[MigNode, ClaimRef]:
    """A plugin that died inside the creation of a compute instance, and the one started after."""
    node = MigNode()
    ref = node.add(claim("a", ref_of))
    node.mig.fail = {("create_compute", 1): Crash()}  # type: ignore[dict-item]
    with pytest.raises(Crash):
        node.prepare(ref)
    return MigNode(of=node), ref


def test_a_half_made_partition_of_a_dead_process_is_taken_up_by_the_next_attempt() -> None:
    node, ref = crashed()
    assert [i.compute for i in node.instances()] == [()]
    assert isinstance(node.prepare(ref), tuple)
    assert [len(i.compute) for i in node.instances()] == [1]


def test_or_is_destroyed_when_the_claim_ends_first() -> None:
    node, ref = crashed()
    assert node.unprepare(ref) == ""
    assert (node.instances(), node.mig.on, node.ledger.kept) == ([], set(), {})


def test_a_claim_that_was_allocated_anew_gives_its_old_partition_up() -> None:
    node = MigNode()
    ref = node.add(claim("a", SMALL))
    node.prepare(ref)
    node.add(claim("a", LARGE))
    assert isinstance(node.prepare(ref), tuple)
    assert [i.placement.start for i in node.instances()] == [4]


def test_also_on_another_gpu_under_the_lock_of_each() -> None:
    node = MigNode()
    node.prepare(node.add(claim("a", SMALL)))
    ref = node.add(claim("a", partition(1, "1g.10gb", 0)))
    assert isinstance(node.prepare(ref), tuple)
    assert (node.instances(0), len(node.instances(1))) == ([], 1)


@pytest.mark.parametrize(
    ("held", "wanted"),
    [(SMALL, device(0)), (device(0), SMALL), (SMALL, partition(0, "4g.40gb", 0))],
    ids=["whole over part", "part over whole", "part over part"],
)
def test_what_overlaps_a_prepared_claim_is_refused(held: str, wanted: str) -> None:
    node = MigNode()
    node.prepare(node.add(claim("first", held)))
    calls = len(node.mig.calls)
    assert "still held by claim default/first" in node.error(node.add(claim("second", wanted)))
    assert len(node.mig.calls) == calls


def test_a_foreign_instance_is_named_left_alone_and_written_down_by_nobody() -> None:
    node = MigNode()
    other = foreign(node, "1g.10gb")
    ref = node.add(claim("a", SMALL))
    assert "GPU instance 1 that Tessera did not make" in node.error(ref)
    assert node.unprepare(ref) == ""
    assert node.ledger.puts == 0
    assert node.instances() == [other]
    assert "still has 1 partitions" in node.error(node.add(claim("b", device(0))))


def test_a_foreign_instance_keeps_mig_mode_on_when_our_last_partition_goes() -> None:
    node = MigNode()
    other = foreign(node, "1g.10gb", 6)
    ref = node.add(claim("a", SMALL))
    node.prepare(ref)
    assert node.unprepare(ref) == ""
    assert node.instances() == [other]
    assert node.mig.on == {gpu(0).uuid}


def test_admin_access_to_a_partition_shares_it_and_leaves_it_to_its_owner() -> None:
    node = MigNode()
    watcher = node.add(claim("watcher", SMALL, adminAccess=True))
    assert "is not there now" in node.error(watcher)
    owner = node.add(claim("owner", SMALL))
    node.prepare(owner)
    first = node.prepare(watcher)
    puts = node.ledger.puts
    assert isinstance(first, tuple)
    assert node.prepare(watcher) == first
    assert node.ledger.puts == puts
    assert "TESSERA_DEVICES=MIG-1" in str(node.cdi.specs[watcher.uid])
    assert node.unprepare(watcher) == ""
    assert len(node.instances()) == 1
    assert node.unprepare(owner) == ""
    assert node.instances() == []


def test_after_a_reboot_nothing_is_destroyed_for_a_claim_of_before() -> None:
    before = MigNode()
    ref = before.add(claim("a", SMALL))
    before.prepare(ref)
    before.mig.held.clear()
    after = MigNode(boot="boot-2", of=before)
    other = foreign(after, "1g.10gb")
    assert after.unprepare(ref) == ""
    assert after.instances() == [other]
    assert ClaimUID(ref.uid) not in after.ledger.kept
