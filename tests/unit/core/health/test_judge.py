"""What evidence makes of devices: who is concerned, what is published, and what is explained."""

from __future__ import annotations

import pytest

from api.resource.limits import MAX_TAINTS
from api.resource.types import Taint, TaintEffect
from driver.core.choices import Choices
from driver.core.devices import EVERY_SLOT
from driver.core.health.evidence import token
from driver.core.health.explain import explain, moment, summary
from driver.core.health.judge import Subject, judge, subjects
from driver.core.health.judgement import State
from driver.core.health.signals import Need, Scope, Source
from driver.core.health.taints import taints
from driver.core.ids import DeviceName, GpuUuid
from driver.core.inventory import build_inventory
from driver.core.snapshot import MigState
from tests.data.mig_boards import H100
from tests.unit.core.given import DRIVER, gpu, snapshot, uuid
from tests.unit.core.health.given_health import (
    G0,
    G1,
    PART,
    SETTINGS,
    ack,
    cannot_tell,
    fault,
    lived,
    passed,
    reset,
    well,
)

NO = TaintEffect.NO_SCHEDULE


def taint(family: str, value: str, effect: TaintEffect = NO) -> Taint:
    return Taint(key=f"{DRIVER}/{family}", value=value, effect=effect)


def states(node) -> dict[str, State]:
    return {name: each.state for name, each in node.at(node.now).devices.items()}


def test_a_gpus_fault_takes_all_its_devices_and_no_other_gpus():
    """Cases D13, D14: two partitions on one GPU, an Xid without an instance."""
    node = lived([fault("xid-79", Need.REBOOT, 10)])
    sick = {name for name, state in states(node).items() if state is State.REBOOT}
    assert sick == {"whole-0", "part-0-0", "part-0-2", "small-0-1"}
    assert {s for n, s in states(node).items() if n not in sick} == {State.READY}


def test_a_gpu_that_is_missing_has_no_device_and_the_node_still_names_it():
    """Case D20."""
    lost = GpuUuid("GPU-gone")
    node = lived([fault("gpu-missing", at=10, on=lost, by=Source.POLL)])
    found = node.at(10)
    assert set(states(node).values()) == {State.READY}
    assert (found.state, found.gpus[lost].state) == (State.RESET, State.RESET)
    none_left = judge(node.evidence, (), 10, SETTINGS)
    assert (none_left.state, [*none_left.gpus]) == (State.RESET, [lost])


def test_the_subjects_are_the_devices_by_slot_and_late_ones_may_lie_anywhere():
    hopper = MigState(capable=True, switchable=True, geometry=H100)
    built = build_inventory(snapshot(gpu(1, mig=hopper)), Choices(profiles=("1g.10gb", "3g.40gb")))
    by_name = {each.device: each for each in subjects(built.devices)}
    assert by_name[DeviceName("gpu-00000001")].slots == EVERY_SLOT
    assert by_name[DeviceName("gpu-00000001-mig-3g40gb-4")] == Subject(
        device=DeviceName("gpu-00000001-mig-3g40gb-4"), gpu=uuid(1), slots=0b11110000
    )


def test_the_worst_decides_the_oldest_of_them_is_named_and_all_are_listed():
    node = lived(
        [
            fault("xid-63", Need.WATCH, 5),
            fault("xid-95", at=20),
            fault("xid-119", at=15),
            fault("xid-45", Need.NOTHING, 30),
        ]
    )
    found = node.device()
    assert [r.item.name for r in found.reasons] == ["xid-119", "xid-95", "xid-63", "xid-45"]
    assert (found.state, found.since) == (State.RESET, 15)
    assert [r.item.name for r in found.deciding] == ["xid-119", "xid-95"]


def test_an_applications_error_is_shown_for_a_while_and_then_is_not():
    node = lived([fault("xid-31", Need.NOTHING, 100)])
    assert len(node.device("whole-0", 699).reasons) == 1
    assert (node.at(699).due, node.at(700).due) == (700, None)
    assert node.device("whole-0", 700).reasons == ()


def test_a_clock_set_back_makes_nothing_younger():
    node = lived([cannot_tell("nvml", 100), cannot_tell("nvml", 500)])
    assert node.device("whole-0", 110).state is State.UNKNOWN
    node.now = 300.0
    assert node.live(well("nvml", 299)).state() is State.UNKNOWN
    assert node.live(well("nvml", 301)).state() is State.READY


@pytest.mark.parametrize(
    ("signals", "wanted"),
    [
        ([], []),
        ([fault("xid-13", Need.NOTHING)], []),
        ([fault("xid-13", Need.NOTHING), fault("xid-79", Need.REBOOT)], [("fault", "xid-79")]),
        (
            [fault("xid-95"), fault("xid-64", Need.OPERATOR), fault("xid-63", Need.WATCH)],
            [("fault", "xid-64"), ("degraded", "xid-63")],
        ),
        ([cannot_tell("nvml", 0), fault("x", at=90)], [("fault", "x"), ("unknown", "nvml")]),
    ],
)
def test_a_family_has_one_taint_that_names_the_worst(signals, wanted):
    effects = {"degraded": TaintEffect.NONE}
    got = taints(lived([*signals, fault("late", Need.NOTHING, 99)]).device(), DRIVER)
    assert got == tuple(taint(f, v, effects.get(f, NO)) for f, v in wanted)


def test_pods_are_ended_only_for_what_was_opted_in():
    found = lived(
        [fault("xid-64", Need.OPERATOR), fault("xid-95"), cannot_tell("nvml", 0)]
    ).device()
    assert taints(found, DRIVER, {"xid-31"}) == (taint("fault", "xid-64"),)
    assert taints(found, DRIVER, {"xid-95"}) == (taint("fault", "xid-95", TaintEffect.NO_EXECUTE),)


@pytest.mark.parametrize("name", ["x" * 300, "", "Ünïcode ✓", "a/b", "-.-", "\udc80", "UPPER"])
def test_any_name_becomes_a_label_value_that_no_other_has(name):
    found = lived([fault(name), fault(f"{name}2")]).device()
    (each,) = taints(found, DRIVER)
    assert 0 < len(each.value) <= 63
    assert each.value[0].isalnum()
    assert each.value[-1].isalnum()
    assert each.value.isascii()
    assert len({r.item.name for r in found.reasons}) == 2
    assert token(each.value) == each.value


def test_there_are_never_more_taints_than_the_server_takes():
    many = [fault(f"xid-{n}", need, n) for n, need in enumerate([*Need] * 40)]
    found = lived([*many, *(cannot_tell(f"look-{n}", 1000) for n in range(50))]).at(2000)
    assert len(taints(found.devices[DeviceName("whole-0")], DRIVER)) == 3 <= MAX_TAINTS


def test_the_explanation_says_what_since_when_how_often_what_clears_it_and_who_acts():
    node = lived([fault("xid-95", at=60, on=PART), fault("xid-95", at=120, on=PART)])
    minute, admin = "1970-01-01 00:01:00Z", "an administrator, once no pod uses the GPU"
    assert explain(node.device("part-0-0")) == (
        f"withheld until the GPU is reset and a probe passes, since {minute}",
        f"xid-95: by kernel-log at slots 0b11; seen 2 times from {minute} to 1970-01-01 00:02:00Z",
        f"  clears by: a GPU reset, then a passed probe; to act: {admin}",
    )
    node.live(reset(180))
    assert explain(node.device("part-0-0"))[-1] == (
        "  clears by: a passed probe; to act: nobody: Tessera probes it as soon as it is idle;"
        " reset 1970-01-01 00:03:00Z"
    )
    assert explain(node.live(passed(240)).device("part-0-0")) == ("ready",)


@pytest.mark.parametrize(
    ("signals", "says"),
    [
        ([fault("xid-64", Need.OPERATOR)], "tessera ack"),
        ([fault("probe-error", by=Source.PROBE)], "withheld until a probe passes, since"),
        ([fault("probe-error", by=Source.PROBE)], "while it is idle; if it stays, reset the GPU"),
        ([fault("xid-64", Need.OPERATOR), ack("xid-64", 5)], "acknowledged by ann"),
        ([fault("xid-149", injected=True)], "injected by a test, withholds nothing"),
        ([cannot_tell("nvml", 0)], "cannot be told for now"),
        ([fault("xid-13", Need.NOTHING)], "nothing to clear"),
        ([fault("xid-63", Need.WATCH)], "clears by: a GPU reset; to act: an administrator"),
        ([fault("row", Need.WATCH, by=Source.POLL)], "a look that finds it in order"),
        ([fault("xid-79", Need.REBOOT)], "a reboot of the node, then a passed probe"),
        ([fault("gpu-lost", by=Source.POLL), well("gpu-lost", 3)], "in order since"),
    ],
)
def test_every_kind_of_reason_is_explained(signals, says):
    assert says in "\n".join(explain(lived(signals).device()))


def test_the_summary_is_one_line_of_the_worst_reason():
    node = lived([fault("xid-63", Need.WATCH), fault("xid-79", Need.REBOOT, 60)])
    assert summary(node.device()) == (
        "xid-79, since 1970-01-01 00:01:00Z; clears by: a reboot of the node, then a passed probe;"
        " to act: an administrator, once the node is drained"
    )
    assert summary(node.device("whole-1")) == "ready"


def test_a_time_beyond_the_calendar_is_still_told():
    assert moment(1e18) == "1000000000000000000 s after the epoch"


def test_another_instances_fault_is_not_this_ones():
    node = lived([fault("xid-95", on=Scope(gpu=G0, gi=2, ci=0)), fault("xid-95", on=G1)])
    assert node.state("part-0-0") is State.READY
