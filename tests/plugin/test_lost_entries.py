"""Claims whose ledger entry is lost, or of no use any more, before recovery has seen it."""

from __future__ import annotations

import pytest

from driver.core.errors import GpuLost, NvmlError
from driver.core.ids import ClaimUID
from tests.plugin.mig import error
from tests.plugin.nodes import MigNode, partition
from tests.plugin.recovering import Node
from tests.plugin.stubs import claim, device, gpu
from tests.plugin.test_late import late_node, small

SMALL, LARGE, WHOLE = partition(0, "1g.10gb", 0), partition(0, "3g.40gb", 0), device(0)


def lose(node: MigNode) -> None:
    """While the plugin runs, and recovery has not looked since."""
    node.ledger.kept.clear()


def test_a_partition_whose_entry_could_not_be_made_again_yet_is_nobodys_to_destroy() -> None:
    node = Node()
    ref, other = node.run("a", SMALL), node.add(claim("b", LARGE))
    first = node.prepare(ref)
    lose(node)
    node.ledger.broken = "cannot write: disk error"
    node.recovery.begin()
    assert node.told.take() == [("rebuild", "failed")]
    assert node.error(ref) == "cannot write: disk error"
    said = node.error(other)
    assert "is claim uid-a's by its CDI file" in said
    assert "recovery makes it again" in said
    assert "nvidia-smi" not in said
    assert node.lost == 1
    assert node.recovery.look() == 60.0
    node.ledger.broken = ""
    assert node.after(60) == [("rebuild", "failed"), ("rebuild", "done")]
    assert node.prepare(ref) == first
    assert "still held by claim default/a" in node.error(other)


@pytest.mark.parametrize("lost", [WHOLE, SMALL], ids=["whole", "partition"])
@pytest.mark.parametrize("wanted", [WHOLE, SMALL, LARGE], ids=["whole", "same", "larger"])
def test_what_a_lost_claim_has_is_given_to_nobody(lost: str, wanted: str) -> None:
    node = Node()
    ref, other = node.run("a", lost), node.add(claim("b", wanted))
    lose(node)
    there = list(node.instances())
    said = node.error(other)
    assert "claim uid-a" in said or "still has 1 partitions" in said
    assert node.instances() == there
    assert node.cdi.claims() == {ref.uid}
    assert not node.entries()
    assert node.unprepare(ref) == ""
    assert isinstance(node.prepare(other), tuple)


@pytest.mark.parametrize("devices", [(WHOLE,), (SMALL, device(1))], ids=["whole", "two"])
def test_a_lost_claim_that_is_asked_for_again_has_what_it_had(devices: tuple[str, ...]) -> None:
    node = Node()
    ref = node.run("a", *devices)
    first, held, calls = node.prepare(ref), node.entries(), node.mig.calls.count("create")
    lose(node)
    assert node.prepare(ref) == first
    assert node.entries() == held
    assert node.mig.calls.count("create") == calls


def test_a_place_that_was_chosen_at_preparation_is_not_chosen_twice_for_one_claim() -> None:
    node = late_node()
    ref = node.add(claim("a", small(0)))
    first = node.prepare(ref)
    lose(node)
    assert node.prepare(ref) == first
    assert len(node.instances()) == 1


@pytest.mark.parametrize("api", ["there", "away"])
def test_nor_is_what_a_lost_claim_has_still_made_anew_after_a_reset_of_its_other_gpu(
    api: str,
) -> None:
    node = Node()
    ref = node.run("a", partition(1, "1g.10gb", 0), SMALL)
    there = list(node.instances(0))
    lose(node)
    node.mig.held[gpu(1).uuid].clear()
    if api == "away":
        with node.away():
            node.recovery.begin()
    assert isinstance(node.prepare(ref), tuple)
    assert (node.instances(0), len(node.instances(1))) == (there, 1)
    assert [h.uuid for h in node.entries()[ref.uid].holdings] == ["MIG-3", "MIG-1"]


def test_a_lost_claim_that_was_allocated_anew_leaves_nothing_at_its_former_place() -> None:
    node = Node()
    node.run("a", SMALL)
    lose(node)
    ref = node.add(claim("a", partition(1, "1g.10gb", 0)))
    assert isinstance(node.prepare(ref), tuple)
    assert (node.instances(0), len(node.instances(1))) == ([], 1)


@pytest.mark.parametrize("devices", [(SMALL,), (WHOLE,), (SMALL, device(1))])
def test_the_end_of_a_lost_claim_leaves_nothing(devices: tuple[str, ...]) -> None:
    node = Node()
    ref = node.run("a", *devices)
    lose(node)
    with node.away():
        assert node.unprepare(ref) == ""
    assert node.is_empty()
    assert node.mig.on == set()


def test_or_is_refused_until_it_can() -> None:
    """A disk that is full, a GPU that does not answer, or one that was never read."""
    node = Node()
    ref = node.run("a", SMALL)
    lose(node)
    node.ledger.broken = "no space left"
    assert "no space left" in node.unprepare(ref)
    node.ledger.broken = ""
    calls = node.mig.calls.count("instances")
    node.mig.fail = {("instances", calls + 1): error(GpuLost, "instances", 15)}
    assert "a GPU of it does not answer" in node.unprepare(ref)
    inventory = node.hardware.inventory
    assert inventory is not None
    node.hardware.__init__()  # type: ignore[misc]
    assert f"names {SMALL}" in node.unprepare(ref)
    node.hardware.found(inventory)
    assert len(node.instances()) == len(node.cdi.specs) == 1
    assert node.unprepare(ref) == ""
    assert node.is_empty()


def test_nor_while_a_ledger_file_of_a_later_version_may_explain_its_file() -> None:
    node = Node()
    ref = node.run("a", SMALL)
    lose(node)
    node.ledger.newer = {ClaimUID("uid-z"): "z.json has ledger version 2"}
    assert "ledger version 2" in node.unprepare(ref)
    assert node.cdi.claims() == {ref.uid}


def test_a_lost_watcher_of_a_partition_ends_without_it_and_its_holder_with_it() -> None:
    node = Node()
    holder = node.run("a", SMALL)
    watcher = node.add(claim("w", SMALL, adminAccess=True))
    node.prepare(watcher)
    both = dict(node.ledger.kept)
    lose(node)
    assert "another claim's file names the same" in node.unprepare(watcher)
    node.ledger.kept[holder.uid] = both[holder.uid]
    assert node.unprepare(watcher) == ""
    assert len(node.instances()) == 1
    assert node.unprepare(holder) == ""
    assert node.is_empty()


def test_of_a_lost_claim_that_ended_only_what_nobody_else_has_is_taken() -> None:
    """It watched one partition and had another."""
    node = Node()
    holder = node.run("a", SMALL)
    obj = claim("w", SMALL, partition(0, "1g.10gb", 1))
    obj["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
    watcher = node.add(obj)
    assert isinstance(node.prepare(watcher), tuple)
    del node.ledger.kept[watcher.uid]
    assert node.unprepare(watcher) == ""
    assert [i.placement.start for i in node.instances()] == [0]
    assert node.entries().keys() == node.cdi.claims() == {holder.uid}


def test_a_uuid_that_another_instance_has_by_now_makes_it_nobodys() -> None:
    node = MigNode()
    ref = node.add(claim("a", SMALL))
    node.prepare(ref)
    lose(node)
    (there,) = node.instances()
    node.mig.held.clear()
    node.mig.made = 0
    neighbour = MigNode(of=node)
    neighbour.cdi = type(neighbour.cdi)()
    neighbour = MigNode(of=neighbour)
    assert isinstance(neighbour.prepare(neighbour.add(claim("z", LARGE))), tuple)
    assert node.instances()[0].compute == there.compute
    lose(node)
    assert "that Tessera did not make" in node.error(ref)


@pytest.mark.parametrize("files", ["its own file", "no file"])
def test_what_cannot_be_made_anew_takes_its_file_along(files: str) -> None:
    node = MigNode()
    ref = node.add(claim("a", SMALL))
    node.prepare(ref)
    if files == "no file":
        node.cdi.specs.clear()
    node.mig.held.clear()
    node.mig.fail = {("create", 2): error(NvmlError, "create", 999)}
    assert "NVML code 999" in node.error(ref)
    assert (dict(node.entries()), node.cdi.specs, node.instances()) == ({}, {}, [])
    assert isinstance(node.prepare(ref), tuple)


def test_so_does_a_claim_that_was_allocated_anew_and_fails() -> None:
    node = MigNode()
    node.prepare(node.add(claim("a", SMALL)))
    ref = node.add(claim("a", LARGE))
    node.mig.fail = {("create", 2): error(NvmlError, "create", 999)}
    assert "NVML code 999" in node.error(ref)
    assert (dict(node.entries()), node.cdi.specs, node.instances()) == ({}, {}, [])
