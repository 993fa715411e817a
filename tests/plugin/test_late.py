"""Claims for partitions whose start is chosen when they are prepared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from driver.core.boards import Binding
from driver.core.choices import Choices
from driver.core.errors import NvmlError
from driver.core.inventory import build_inventory
from driver.core.ledger import Phase
from driver.plugin.node import Hardware
from driver.ports.kubelet import ClaimRef
from tests.data.mig_boards import H100
from tests.plugin.mig import error
from tests.plugin.nodes import MigNode, mig_gpu, mig_snapshot
from tests.plugin.stubs import claim, device, gpu

LATE = Choices(profiles=("1g.10gb",), binding=Binding.PREPARE)


def late_node(*, boot: str = "boot-1", of: MigNode | None = None) -> MigNode:
    node = MigNode(boot=boot, of=of)
    node.claims._hardware = hardware = Hardware()
    hardware.found(build_inventory(mig_snapshot(mig_gpu(0), mig_gpu(1)), LATE))
    return node


def small(ordinal: int) -> str:
    return f"{device(0)}-mig-1g10gb-n{ordinal}"


def add(node: MigNode, name: str, *devices: str) -> ClaimRef:
    return node.add(claim(name, *devices))


def starts(node: MigNode) -> list[int]:
    """On the hardware, in the order in which they were made."""
    return [i.placement.start for i in node.instances()]


def in_ledger(node: MigNode, ref: ClaimRef) -> list[int]:
    return [h.slot.start for h in node.entries()[ref.uid].holdings if h.slot is not None]


def test_the_start_is_chosen_written_down_and_kept() -> None:
    node = late_node()
    first, second = add(node, "a", small(3)), add(node, "b", small(0))
    answer = node.prepare(first)
    assert isinstance(answer, tuple)
    assert (answer[0].device, starts(node)) == (small(3), [6])
    node.prepare(second)
    assert (in_ledger(node, first), in_ledger(node, second), starts(node)) == ([6], [4], [6, 4])
    done = node.ledger.puts, len(node.mig.calls)
    assert node.unprepare(first) == ""
    again = node.prepare(second)
    assert isinstance(again, tuple)
    assert (starts(node), node.ledger.puts) == ([4], done[0])


def test_a_gpu_is_filled_emptied_in_part_and_filled_again() -> None:
    node = late_node()
    refs = [add(node, f"c{n}", small(n)) for n in range(7)]
    assert all(isinstance(node.prepare(ref), tuple) for ref in refs)
    assert sorted(starts(node)) == [*range(7)]
    for number in (1, 4, 5):
        assert node.unprepare(refs[number]) == ""
    for number in (5, 1, 4):
        assert isinstance(node.prepare(add(node, f"d{number}", small(number))), tuple)
    assert sorted(starts(node)) == [*range(7)]


def test_a_number_that_is_given_anew_while_its_old_pod_runs_gets_another_place() -> None:
    """After a forced deletion; the exact device would have to wait."""
    node = late_node()
    node.prepare(add(node, "old", small(0)))
    assert isinstance(node.prepare(add(node, "new", small(0))), tuple)
    assert starts(node) == [6, 4]


def test_without_room_the_claims_on_the_gpu_are_named_and_an_end_makes_room() -> None:
    node = late_node()
    refs = [add(node, f"c{n}", small(n)) for n in range(7)]
    for ref in refs:
        node.prepare(ref)
    late = add(node, "late", small(2))
    message = node.error(late)
    assert f"no start for device {small(2)} is free on GPU {gpu(0).uuid}" in message
    assert "claim default/c2 (uid-c2)" in message
    assert node.unprepare(refs[2]) == ""
    assert isinstance(node.prepare(late), tuple)


def test_a_whole_gpu_and_its_partitions_exclude_each_other() -> None:
    node = late_node()
    part = add(node, "part", small(0))
    node.prepare(part)
    whole = add(node, "whole", device(0))
    assert "still held by claim default/part" in node.error(whole)
    node.unprepare(part)
    assert isinstance(node.prepare(whole), tuple)
    assert "claim default/whole" in node.error(part)


def test_a_place_that_somebody_else_took_is_passed_by() -> None:
    node = late_node()
    node.mig.on.add(gpu(0).uuid)
    profile = H100.profile("2g.20gb")
    node.mig.create(gpu(0).uuid, profile, profile.placements[-1])
    assert isinstance(node.prepare(add(node, "a", small(0))), tuple)
    assert starts(node) == [4, 6]


@pytest.mark.parametrize("call", ["create", "create_compute"])
def test_a_failed_attempt_leaves_nothing_and_the_next_one_chooses_again(call: str) -> None:
    node = late_node()
    ref = add(node, "a", small(0), small(1))
    node.mig.fail = {(call, 2): error(NvmlError, call, 999)}
    assert "NVML code 999" in node.error(ref)
    assert (starts(node), node.ledger.kept) == ([], {})
    assert isinstance(node.prepare(ref), tuple)
    assert starts(node) == [6, 4]


def test_a_claim_that_a_crash_left_half_made_is_finished_where_it_was_begun() -> None:
    node = late_node()
    ref, other = add(node, "a", small(0)), add(node, "b", small(1))
    node.prepare(other)
    node.prepare(ref)
    node.unprepare(other)
    half = replace(node.ledger.kept[ref.uid], phase=Phase.STARTED)
    (held,) = half.holdings
    assert held.slot is not None
    node.ledger.kept[ref.uid] = replace(
        half, holdings=(replace(held, slot=replace(held.slot, made=None)),)
    )
    after = late_node(of=node)
    assert isinstance(after.prepare(ref), tuple)
    assert (starts(after), in_ledger(after, ref)) == ([4], [4])


def test_after_a_reboot_all_claims_find_room_in_any_order() -> None:
    before = late_node()
    refs = [add(before, f"c{n}", small(n)) for n in range(7)]
    answers = [before.prepare(ref) for ref in refs]
    before.mig.held.clear()
    before.mig.on.clear()
    after = late_node(boot="boot-2", of=before)
    assert [after.prepare(ref) for ref in reversed(refs)] == answers[::-1]
    assert sorted(starts(after)) == [*range(7)]
