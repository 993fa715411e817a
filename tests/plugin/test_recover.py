"""Repairs on a node in memory: what is found at a start or in between, and what stays."""

from __future__ import annotations

import pytest

from driver.core.errors import GpuLost, NotFound, NotSupported, NvmlError, StateError
from driver.core.ids import ClaimUID
from driver.core.ledger import Phase
from driver.plugin.node import Hardware
from driver.plugin.preparing.gpu_locks import GpuLocks
from driver.plugin.preparing.turns import Turns
from driver.ports.events import Reason
from tests.data.mig_boards import H100
from tests.plugin.mig import error
from tests.plugin.nodes import partition
from tests.plugin.recovering import GRACE, Node
from tests.plugin.stubs import claim, device, gpu

SMALL, OTHER, LARGE = (
    partition(0, "1g.10gb", 0),
    partition(0, "1g.10gb", 1),
    partition(0, "3g.40gb", 4),
)
WHOLE = device(1)


@pytest.fixture
def node() -> Node:
    return Node()


def test_a_cdi_folder_that_cannot_be_listed_stops_no_start(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise StateError("cannot read /cdi: Input/output error")

    monkeypatch.setattr(node.cdi, "claims", broken)
    node.recovery.begin()
    assert node.recovery.look() == 300.0


def test_where_all_is_well_nothing_is_done(node: Node) -> None:
    node.run("a", SMALL, LARGE)
    node.run("b", WHOLE)
    puts = node.ledger.puts
    node.recovery.begin()
    assert node.after(0) == []
    assert (node.told.orphans, node.ledger.puts) == (0, puts)


def test_files_of_running_claims_are_back_before_the_api_is_asked(node: Node) -> None:
    refs = [node.run("a", SMALL), node.run("b", WHOLE)]
    before = dict(node.cdi.specs)
    node.cdi.specs = {refs[1].uid: {"kind": "altered"}}
    with node.away():
        node.recovery.begin()
    assert node.cdi.specs == before
    assert node.told.take() == [("restore_cdi", "done")] * 2
    assert node.told.events == [Reason.RECOVERED] * 2


def test_a_file_that_cannot_be_told_now_is_left_for_later(node: Node) -> None:
    node.run("a", SMALL)
    node.cdi.specs.clear()
    node.root.missing = "no libcuda"
    node.recovery.begin()
    assert node.told.take() == []
    node.root.missing = ""
    assert node.after(0) == [("restore_cdi", "done")]


@pytest.mark.parametrize("api", ["there", "away"])
@pytest.mark.parametrize("devices", [(SMALL, LARGE), (WHOLE,)], ids=["partitions", "whole"])
def test_a_lost_ledger_is_made_again_and_the_claim_goes_on(
    node: Node, devices: tuple[str, ...], api: str
) -> None:
    ref = node.run("a", *devices)
    first = node.prepare(ref)
    held = node.entries()[ref.uid]
    node.ledger.kept.clear()
    node.recovery.begin()
    assert node.told.take() == [("rebuild", "done")]
    assert node.told.events == [Reason.LEDGER_REBUILT]
    assert node.entries()[ref.uid].name == ""
    if api == "there":
        node.recovery.look()
        assert node.entries()[ref.uid] == held
    made = node.mig.calls.count("create")
    assert node.prepare(ref) == first
    assert node.entries()[ref.uid] == held
    assert node.mig.calls.count("create") == made
    assert node.unprepare(ref) == ""
    assert node.is_empty()


def test_a_claim_of_a_lost_ledger_can_be_taken_back_without_the_api(node: Node) -> None:
    ref = node.run("a", SMALL)
    node.ledger.kept.clear()
    with node.away():
        node.recovery.begin()
        assert node.unprepare(ref) == ""
    assert node.is_empty()


def test_a_claim_of_a_lost_ledger_that_is_gone_is_taken_back_after_the_grace(node: Node) -> None:
    ref = node.run("a", SMALL)
    node.ledger.kept.clear()
    node.delete(ref)
    node.recovery.begin()
    node.told.take()
    assert node.after(0) == []
    assert node.told.orphans == 1
    assert node.after(GRACE) == [("take_back", "done")]
    assert node.is_empty()


def test_while_a_ledger_file_of_a_later_version_is_there_no_file_is_judged(node: Node) -> None:
    ref = node.run("a", SMALL)
    node.ledger.newer = {ref.uid: "too new"}
    node.ledger.kept.clear()
    node.delete(ref)
    node.recovery.begin()
    assert node.after(GRACE) == []
    assert node.cdi.claims() == {ref.uid}


def test_half_made_partitions_of_a_claim_that_is_gone_go_at_once(node: Node) -> None:
    ref = node.add(claim("a", SMALL, LARGE))
    node.mig.fail = {
        ("create_compute", 2): error(NvmlError, "create_compute", 999),
        ("destroy", 1): error(GpuLost, "destroy", 15),
        ("destroy", 2): error(GpuLost, "destroy", 15),
    }
    assert "the next attempt clears" in node.error(ref)
    assert len(node.instances()) == 2
    assert node.entries()[ref.uid].phase is Phase.STARTED
    assert node.after(0) == []
    node.delete(ref)
    assert node.after(300) == [("take_back", "done")]
    assert node.is_empty()
    assert gpu(0).uuid not in node.mig.on


@pytest.mark.parametrize("devices", [(SMALL,), (WHOLE,)], ids=["partition", "whole"])
def test_a_claim_that_is_gone_is_taken_back_after_the_grace_and_the_device_is_free(
    node: Node, devices: tuple[str, ...]
) -> None:
    ref = node.run("a", *devices)
    node.delete(ref)
    assert node.after(0) == []
    assert node.told.orphans == 1
    assert node.after(GRACE - 1) == []
    assert node.after(1) == [("take_back", "done")]
    assert (node.told.events, node.told.orphans) == ([Reason.ORPHAN_REMOVED], 0)
    assert node.told.changes == 1
    node.run("b", *devices)


def test_the_next_look_comes_when_the_grace_ends(node: Node) -> None:
    ref = node.run("a", SMALL)
    assert node.recovery.look() == 300.0
    node.delete(ref)
    assert node.recovery.look() == GRACE
    node.now += 20
    assert node.recovery.look() == GRACE - 20


def test_a_claim_that_is_there_in_between_has_its_grace_again(node: Node) -> None:
    ref = node.run("a", SMALL)
    obj = node.api.claims.pop((ref.namespace, ref.name))
    node.after(0)
    node.api.claims[ref.namespace, ref.name] = obj
    node.after(GRACE)
    node.delete(ref)
    assert node.after(GRACE) == []
    assert node.after(GRACE) == [("take_back", "done")]


def test_an_api_that_does_not_answer_proves_nothing(node: Node) -> None:
    ref = node.run("a", SMALL)
    node.delete(ref)
    node.after(0)
    with node.away():
        assert node.after(10 * GRACE) == []
    assert node.after(0) == [("take_back", "done")]


def test_a_new_claim_of_the_same_name_is_another_claim(node: Node) -> None:
    ref = node.run("a", SMALL)
    node.add(claim("a", OTHER, uid="uid-later"))
    node.after(0)
    assert node.after(GRACE) == [("take_back", "done")]
    assert ref.uid not in node.entries()


def test_a_claim_without_its_allocation_holds_nothing(node: Node) -> None:
    ref = node.run("a", SMALL)
    node.api.claims[ref.namespace, ref.name]["status"] = {}
    node.after(0)
    assert node.after(GRACE) == [("take_back", "done")]


def test_a_claim_that_the_reflector_shows_costs_no_request(node: Node) -> None:
    ref = node.run("a", SMALL)
    metadata = node.api.claims[ref.namespace, ref.name]["metadata"]
    node.followed = {ref.uid: {"metadata": metadata, "devices": (SMALL,)}}
    with node.away():
        assert node.after(GRACE) == []
        assert node.told.orphans == 0


@pytest.mark.parametrize(
    ("devices", "instance"), [((SMALL,), 1), ((WHOLE,), None)], ids=["partition", "whole"]
)
def test_what_a_process_computes_on_is_left_until_it_ends(
    node: Node, devices: tuple[str, ...], instance: int | None
) -> None:
    ref = node.run("a", *devices)
    node.delete(ref)
    node.after(0)
    place = (gpu(0 if instance else 1).uuid, instance)
    node.mig.running[place] = 1
    assert node.after(GRACE) == [("take_back", "in_use")]
    assert (node.told.orphans, len(node.cdi.specs)) == (1, 1)
    del node.mig.running[place]
    assert node.after(300) == [("take_back", "done")]


@pytest.mark.parametrize(
    ("kind", "outcome"), [(NvmlError, "in_use"), (NotSupported, "done"), (NotFound, "done")]
)
def test_a_whole_gpu_is_given_on_only_if_the_driver_has_said_what_it_can(
    node: Node, kind: type[NvmlError], outcome: str
) -> None:
    node.delete(node.run("a", WHOLE))
    node.after(0)
    node.mig.fail = {("processes", 1): error(kind, "processes", 999)}
    assert node.after(GRACE) == [("take_back", outcome)]


def test_a_partition_that_the_driver_calls_in_use_is_left_until_it_is_not(node: Node) -> None:
    ref = node.run("a", SMALL)
    node.delete(ref)
    node.after(0)
    node.mig.busy.add(1)
    assert node.after(GRACE) == [("take_back", "in_use")]
    assert len(node.entries()) == len(node.instances()) == 1
    assert node.after(300) == [("take_back", "done")]


def test_a_claim_whose_turn_it_is_elsewhere_and_a_gpu_in_use_are_passed_by(node: Node) -> None:
    refs = [node.run("a", SMALL), node.run("b", WHOLE)]
    for ref in refs:
        node.delete(ref)
    node.after(0)
    turns, locks = Turns(node.locks), GpuLocks(node.locks)
    with turns.held(refs[0].uid, by="kubelet"), locks.held([gpu(1).uuid], by="kubelet"):
        assert node.after(GRACE) == [("take_back", "busy"), ("take_back", "failed")]
    assert node.after(1) == [("take_back", "done")] * 2


def test_one_repair_that_fails_stops_no_other(node: Node) -> None:
    node.run("a", SMALL)
    node.run("b", LARGE)
    node.cdi.specs.clear()
    node.cdi.broken = {ClaimUID("uid-a")}
    assert node.after(0) == [("restore_cdi", "failed"), ("restore_cdi", "done")]


def test_a_gpu_that_does_not_answer_keeps_its_claims(node: Node) -> None:
    ref = node.run("a", SMALL)
    node.delete(ref)
    node.after(0)
    count = node.mig.calls.count("instances")
    node.mig.fail[("instances", count + 1)] = error(GpuLost, "instances", 15)
    assert node.after(GRACE) == []
    assert node.after(0) == [("take_back", "done")]


def test_what_nobody_here_made_stays(node: Node) -> None:
    ref = node.run("a", SMALL)
    place = H100.profile("2g.20gb")
    node.mig.create(gpu(0).uuid, place, place.placements[1])
    there = node.instances()[1:]
    node.delete(ref)
    node.after(0)
    node.after(GRACE)
    assert node.instances() == there


def test_entries_of_an_earlier_boot_go_when_their_claim_has(node: Node) -> None:
    gone, kept = node.run("a", SMALL), node.run("b", LARGE)
    node.mig.held.clear()
    later = Node(boot="boot-2", of=node)
    later.delete(gone)
    later.recovery.begin()
    assert later.after(0) == [("forget", "done")]
    assert later.entries().keys() == {kept.uid}
    assert "destroy" not in later.mig.calls


def test_a_file_that_nothing_explains_goes_when_its_claim_has(node: Node) -> None:
    ref = node.run("a", SMALL)
    node.ledger.kept.clear()
    node.mig.held.clear()
    assert node.after(0) == []
    node.delete(ref)
    assert node.after(0) == [("remove_cdi", "done")]
    assert node.cdi.specs == {}


def test_a_claim_that_admin_access_opened_is_ended_without_touching_its_device(
    node: Node,
) -> None:
    holder = node.run("a", SMALL)
    watcher = node.add(claim("w", SMALL, adminAccess=True))
    assert isinstance(node.prepare(watcher), tuple)
    node.delete(watcher)
    node.after(0)
    assert node.after(GRACE) == [("take_back", "done")]
    assert node.entries().keys() == {holder.uid}
    assert len(node.instances()) == 1


def test_a_start_without_anything_to_mend_waits_for_nothing() -> None:
    node = Node()
    unread = node.recovery_of(Hardware(), "boot-1")
    unread.begin()
    assert node.told.take() == []
