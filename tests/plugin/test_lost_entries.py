"""Claims whose ledger entry is lost, or of no use any more, before recovery has seen it."""

from __future__ import annotations

import pytest

from driver.core.errors import NvmlError
from tests.plugin.mig import error
from tests.plugin.nodes import MigNode, partition
from tests.plugin.recovering import Node
from tests.plugin.stubs import claim
from tests.plugin.test_late import late_node, small

SMALL, LARGE = partition(0, "1g.10gb", 0), partition(0, "3g.40gb", 0)


def test_a_partition_whose_entry_could_not_be_made_again_yet_is_nobodys_to_destroy() -> None:
    node = Node()
    ref, other = node.run("a", SMALL), node.add(claim("b", LARGE))
    first = node.prepare(ref)
    node.ledger.kept.clear()
    node.ledger.broken = "cannot write: disk error"
    node.recovery.begin()
    assert node.told.take() == [("rebuild", "failed")]
    for each in (ref, other):
        said = node.error(each)
        assert "is claim uid-a's by its CDI file" in said
        assert "recovery makes it again" in said
        assert "nvidia-smi" not in said
    assert node.recovery.look() == 60.0
    node.ledger.broken = ""
    assert node.after(60) == [("rebuild", "failed"), ("rebuild", "done")]
    assert node.prepare(ref) == first
    assert "still held by claim default/a" in node.error(other)


def test_a_uuid_that_another_instance_has_by_now_makes_it_nobodys() -> None:
    node = MigNode()
    ref = node.add(claim("a", SMALL))
    node.prepare(ref)
    node.ledger.kept.clear()
    (there,) = node.instances()
    node.mig.held.clear()
    node.mig.made = 0
    neighbour = MigNode(of=node)
    neighbour.cdi = type(neighbour.cdi)()
    neighbour = MigNode(of=neighbour)
    assert isinstance(neighbour.prepare(neighbour.add(claim("z", LARGE))), tuple)
    assert node.instances()[0].compute == there.compute
    node.ledger.kept.clear()
    assert "that Tessera did not make" in node.error(ref)


def test_a_place_that_was_chosen_at_preparation_is_not_chosen_twice_for_one_claim() -> None:
    node = late_node()
    ref = node.add(claim("a", small(0)))
    node.prepare(ref)
    node.ledger.kept.clear()
    said = node.error(ref)
    assert "the claim: GPU instance 1" in said
    assert "recovery makes it again" in said
    assert len(node.instances()) == 1


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
