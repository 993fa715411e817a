"""Faults of the node, of a partition, and of slots whose partition is gone."""

from __future__ import annotations

import pytest

from driver.core.health.items import Identity
from driver.core.health.judgement import State
from driver.core.health.signals import Need, Scope, Source
from tests.unit.core.health.given_health import (
    G0,
    GPUS,
    IDENTITY,
    PART,
    fault,
    lived,
    passed,
    reset,
    well,
)

READY, DEGRADED = State.READY, State.DEGRADED


def test_a_fault_of_the_node_ends_once_every_gpu_has_proved_itself():
    node = lived([fault("sxid-1", Need.REBOOT, 10, on=None)]).reboot()
    assert node.state("whole-3") is State.REBOOT
    node.live(passed(20, GPUS[3]), passed(20, Scope(gpu=G0, gi=1)))
    assert (node.state("whole-3"), node.state("whole-0")) == (READY, State.REBOOT)
    assert node.at(20).node.state is State.REBOOT
    node.live(*(passed(21, gpu) for gpu in GPUS[:3]))
    assert node.names() == set()


def test_a_fault_of_the_node_seen_again_is_to_be_proved_by_every_gpu_again():
    node = lived([fault("node-1", Need.PROBE, 10, on=None), passed(20, GPUS[3])])
    node.live(fault("node-1", Need.PROBE, 30, on=None), *(passed(40, gpu) for gpu in GPUS[:3]))
    assert (node.state("whole-0"), node.state("whole-3")) == (READY, DEGRADED)


@pytest.mark.parametrize("need", [Need.RESET, Need.REBOOT, Need.OPERATOR])
def test_a_state_of_the_node_in_order_again_is_proved_by_probes_without_a_boot(need):
    """Case D31: the missing device node is back."""
    node = lived([fault("no-uvm", need, 10, on=None, by=Source.NODES)])
    node.live(*(passed(20, gpu) for gpu in GPUS))
    assert node.state().hard
    node.live(well("no-uvm", 30, on=None, by=Source.NODES), *(passed(40, g) for g in GPUS))
    assert node.names() == set()


def test_a_partition_is_judged_alone_and_its_slots_keep_the_fault_when_it_is_gone():
    node = lived([fault("xid-95", at=10, on=PART)])
    assert node.state("part-0-0") is State.RESET
    assert node.state("small-0-1") is State.RESET
    assert node.state("part-0-2") is READY
    assert node.state("whole-0") is State.RESET
    node.identity = Identity(
        serials=IDENTITY.serials, places={(G0, 1): 0b1100, (G0, 5): 0b0001, (G0, 6): 0b1111}
    )
    node.live(reset(20), passed(30, PART), passed(31, Scope(gpu=G0, gi=5)))
    assert node.state("part-0-0") is State.RESET
    assert node.state("part-0-2") is READY
    assert node.live(passed(40, Scope(gpu=G0, gi=6))).state("part-0-0") is READY


def test_an_instance_id_that_is_used_again_elsewhere_makes_both_places_sick():
    node = lived([fault("xid-95", at=10, on=PART)])
    node.identity = Identity(serials=IDENTITY.serials, places={(G0, 1): 0b1000})
    node.live(fault("xid-95", at=20, on=PART))
    assert {node.state(name) for name in ("small-0-1", "part-0-2")} == {State.RESET}


def test_an_instance_that_nobody_knows_stands_for_its_gpu():
    node = lived([fault("xid-95", at=10, on=Scope(gpu=G0, gi=9, ci=0))])
    assert node.state("part-0-2") is State.RESET
    node.live(reset(20), passed(30, Scope(gpu=G0, gi=9, ci=0)))
    assert node.state("part-0-2") is State.RESET
    assert node.live(passed(40)).state("part-0-2") is READY
