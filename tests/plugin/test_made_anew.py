"""Claims that lose some of their devices after they were complete: the others are left alone.

Somebody resets one of a claim's GPUs; a pod may go on with what it has on the other.
"""

from __future__ import annotations

import pytest

from driver.core.errors import GpuLost, NvmlError
from driver.core.ledger import Phase
from driver.ports.kubelet import ClaimRef
from tests.plugin.mig import error
from tests.plugin.nodes import partition
from tests.plugin.recovering import GRACE, Node
from tests.plugin.stubs import claim, device, gpu

SMALL, WHOLE, LOST = partition(0, "1g.10gb", 0), device(0), partition(1, "1g.10gb", 0)


class Killed(BaseException):
    """The process is gone."""


def reset(node: Node, *devices: str) -> ClaimRef:
    """A claim for these devices and `LOST`, and a reset of its GPU."""
    ref = node.run("a", *devices, LOST)
    node.mig.held[gpu(1).uuid].clear()
    node.mig.on.discard(gpu(1).uuid)
    return ref


def test_a_partition_that_is_there_keeps_its_uuid_and_is_not_touched() -> None:
    node = Node()
    ref = reset(node, SMALL)
    there, done = list(node.instances(0)), len(node.mig.calls)
    assert isinstance(node.prepare(ref), tuple)
    assert node.instances(0) == there
    assert node.mig.calls[done:].count("create") == 1
    assert "destroy" not in node.mig.calls[done:]
    assert [h.uuid for h in node.entries()[ref.uid].holdings] == ["MIG-1", "MIG-3"]
    assert "TESSERA_DEVICES=MIG-1,MIG-3" in str(node.cdi.specs[ref.uid])


@pytest.mark.parametrize("kept", [SMALL, WHOLE], ids=["partition", "whole"])
def test_what_cannot_be_made_anew_takes_nothing_of_the_others_along(kept: str) -> None:
    node = Node()
    ref = reset(node, kept)
    before, files = node.entries(), dict(node.cdi.specs)
    calls = node.mig.calls.count("create")
    node.mig.fail = {("create", calls + 1): error(NvmlError, "create", 999)}
    assert "NVML code 999" in node.error(ref)
    assert (node.entries(), node.cdi.specs) == (before, files)
    assert "still held by claim default/a" in node.error(node.add(claim("b", WHOLE)))
    assert isinstance(node.prepare(ref), tuple)


def test_nor_does_a_rest_that_the_next_attempt_must_clear() -> None:
    node = Node()
    ref = reset(node, SMALL)
    made, undone = (node.mig.calls.count(c) for c in ("create_compute", "destroy"))
    node.mig.fail = {
        ("create_compute", made + 1): error(NvmlError, "create_compute", 999),
        ("destroy", undone + 1): error(GpuLost, "destroy", 15),
    }
    assert f"clears what is left of {LOST}" in node.error(ref)
    assert len(node.instances(1)) == 1
    there = list(node.instances(0))
    assert isinstance(node.prepare(ref), tuple)
    assert (node.instances(0), len(node.instances(1))) == (there, 1)


@pytest.mark.parametrize("kept", [SMALL, WHOLE], ids=["partition", "whole"])
def test_while_it_is_made_anew_a_pod_may_use_the_others(kept: str) -> None:
    """Killed in the middle; the claim is deleted by force, and its containers run on."""
    node = Node()
    ref = reset(node, kept)
    node.mig.running[gpu(0).uuid, None if kept == WHOLE else 1] = 3
    create = node.mig.calls.count("create")
    node.mig.fail = {("create", create + 1): Killed()}  # type: ignore[dict-item]
    with pytest.raises(Killed):
        node.prepare(ref)
    started = node.entries()[ref.uid]
    assert (started.phase, started.may_run) == (Phase.STARTED, True)
    later = Node(of=node)
    later.delete(ref)
    later.recovery.begin()
    assert later.after(0) == []
    assert later.after(GRACE) == [("take_back", "in_use")]
    assert "still held by claim default/a" in later.error(later.add(claim("b", WHOLE)))
    later.mig.running.clear()
    assert later.after(300) == [("take_back", "done")]
    assert later.is_empty()
