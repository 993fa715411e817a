"""A reading that fails once withholds nothing for ever, whatever the GPU is doing afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Final

import pytest
from hypothesis import given, settings, strategies as st

from driver.core.health.evidence import begun
from driver.core.health.explain import explain
from driver.core.health.former_names import ONCE_UNREAD
from driver.core.health.judgement import State
from driver.core.health.readings.node import Memories, weigh_node
from driver.core.health.readings.over_time import Limits
from driver.core.health.readings.unread import UNREAD
from driver.core.health.readings.values import (
    NOT_ASKED,
    Clocks,
    Fabric,
    Failed,
    GpuReadings,
    MemoryUse,
    ModePair,
    NodeReadings,
    Pages,
    PcieLink,
    Repairs,
    Rows,
    Trouble,
)
from driver.core.health.signals import Need
from driver.state.evidence_file import decode, encode
from tests.unit.core.health.given_health import G0, Node, cannot_tell, fault, passed

BROKEN = Failed(trouble=Trouble.OTHER, text="unknown error (999)")
PERIOD, HOUR, SLOW = 5.0, 3600.0, 6
LONG = 700.0
"""Seconds, after which no history has anything left of what was before."""
HARMLESS: Final[dict[str, tuple[Any, ...]]] = {
    "recovery": (0,),
    "uncorrected": (0,),
    "sram_threshold": (False,),
    "rows": (Rows(uncorrectable=1, pending=False, failure=False),),
    "pages": (Pages(double_bit=1, pending=False),),
    "repairs": (Repairs(channel=False, tpc=False),),
    "unrepairable": (False,),
    "inforom_well": (True,),
    "links": ({0: True, 1: True}, {}),
    "link_errors": ({0: 1_000_000}, {}),
    "link_failures": ({0: 7}, {}),
    "fabric": (Fabric(ready=True),),
    "clocks": (Clocks(idle=True), Clocks(idle=False)),
    "pcie": (
        PcieLink(width=16, max_width=16, generation=1, max_generation=5),
        PcieLink(width=16, max_width=16, generation=5, max_generation=5),
    ),
    "load": (0,),
    "mig": (ModePair(current=False, pending=False), ModePair(current=True, pending=True)),
    "memory": (MemoryUse(used=1, total=80 << 30, processes=0),),
}
"""Of a GPU that has nothing, whatever it does; besides these, it may have no such value."""
PARTITIONED: Final[dict[str, Any]] = {
    "mig": ModePair(current=True, pending=True),
    "links": {0: False, 1: False},
    "rows": None,
    "load": None,
    "memory": None,
}
SLOWLY = {"uncorrected", "sram_threshold", "rows", "pages", "repairs", "unrepairable", "pcie",
          "inforom_well", "link_errors", "link_failures", "load", "memory"}  # fmt: skip


@dataclass
class Polled:
    """A node whose first GPU is looked at; `ask` alone does not ask what changes slowly."""

    node: Node = field(default_factory=Node)
    memories: Memories = field(default_factory=dict)
    looks: int = 0

    def look(self, readings: dict[str, Any], *, whole: bool = True) -> None:
        asked = {k: v if whole or k not in SLOWLY else NOT_ASKED for k, v in readings.items()}
        at = self.node.now + PERIOD
        got = NodeReadings(
            at=at, branch=580, gpus={G0: GpuReadings(gpu=G0, at=at, held=False, **asked)}
        )
        signals, self.memories = weigh_node(got, self.memories, Limits())
        self.node.live(*signals)
        self.node.now = at

    def look_for(self, seconds: float, readings: dict[str, Any]) -> None:
        """At the pace of the poll, which asks for everything at every sixth look."""
        end = self.node.now + seconds
        while self.node.now < end:
            self.looks += 1
            self.look(readings, whole=self.looks % SLOW == 0)

    def state(self, later: float = 0.0) -> State:
        return self.node.device(now=self.node.now + later).state


def idle(**other: Any) -> dict[str, Any]:
    return {**{name: values[0] for name, values in HARMLESS.items()}, **other}


def test_every_reading_has_a_name_for_that_it_could_not_be_read() -> None:
    readings = {each.name for each in fields(GpuReadings)} - {"gpu", "at", "held"}
    assert readings == HARMLESS.keys() == UNREAD.keys() | {"load"}
    assert len({*UNREAD.values()}) == len(UNREAD)


@pytest.mark.parametrize(
    ("name", "later"),
    [(name, value) for name, values in HARMLESS.items() for value in (*values, None)],
)
def test_a_reading_that_failed_once_withholds_for_a_while_at_most(name, later) -> None:
    gpu = Polled()
    gpu.look(idle(**{name: BROKEN}))
    unread = {UNREAD[name]} if name in UNREAD else set()
    assert gpu.node.names() == unread
    assert gpu.state(later=HOUR) is (State.UNKNOWN if unread else State.READY)
    gpu.look_for(SLOW * PERIOD, idle(**{name: later}))
    assert (gpu.state(), gpu.node.names()) == (State.READY, set())
    gpu.look_for(LONG, idle(**{name: later}))
    assert (gpu.state(), gpu.node.names()) == (State.READY, set())


@pytest.mark.parametrize("name", UNREAD)
def test_a_reading_that_failed_before_mig_was_switched_on_is_not_waited_for(name) -> None:
    gpu = Polled()
    gpu.look(idle(**{name: BROKEN}))
    gpu.look_for(SLOW * PERIOD, idle(**PARTITIONED))
    assert (gpu.state(), gpu.node.names()) == (State.READY, set())


@pytest.mark.parametrize("name", UNREAD)
def test_a_reading_that_fails_again_and_again_withholds_until_it_is_read(name) -> None:
    gpu = Polled()
    gpu.look_for(LONG, idle(**{name: BROKEN}))
    assert gpu.state() is State.UNKNOWN
    gpu.node.live(passed(gpu.node.now))
    assert gpu.state() is State.UNKNOWN
    (reason,) = gpu.node.device().reasons
    assert reason.item.name == UNREAD[name]
    assert explain(gpu.node.device())[-1] == (
        "  clears by: a look that succeeds; to act: nobody: Tessera looks again by itself"
    )
    gpu.look_for(SLOW * PERIOD, idle())
    assert gpu.state() is State.READY


def test_a_look_that_does_not_ask_says_nothing_of_what_could_not_be_read() -> None:
    gpu = Polled()
    gpu.look(idle(rows=BROKEN))
    for _ in range(20):
        gpu.look(idle(), whole=False)
    assert gpu.state() is State.UNKNOWN


def test_what_can_be_read_again_ends_no_fault_of_that_state() -> None:
    """An idle GPU's slow link says nothing of the link that was slow under load."""
    gpu = Polled()
    slow = HARMLESS["pcie"][0]
    gpu.look(idle(pcie=slow, load=90))
    gpu.look(idle(pcie=BROKEN))
    assert gpu.node.names() == {"pcie-link", "pcie-link-unread"}
    gpu.look(idle(pcie=slow, load=0))
    assert gpu.node.names() == {"pcie-link"}


@pytest.mark.parametrize("name", ONCE_UNREAD)
def test_what_an_earlier_version_could_not_read_ends_with_a_look_that_can(name) -> None:
    gpu = Polled()
    gpu.node.live(cannot_tell(name, 1.0), cannot_tell(name, 100.0), fault("xid-64", Need.WATCH))
    stored = encode(gpu.node.evidence, node="n")
    gpu.node.evidence = begun(decode(stored, node="n", name="f"), boot_id="boot-1", now=100.0)
    assert gpu.state() is State.UNKNOWN
    nothing: dict[str, Any] = dict.fromkeys(HARMLESS)
    gpu.look(nothing, whole=False)
    gpu.look(nothing)
    assert gpu.node.names() == {"xid-64"}


def test_a_fabric_that_is_not_there_any_more_is_not_waited_for() -> None:
    gpu = Polled()
    gpu.look_for(LONG, idle(fabric=Fabric(ready=False)))
    assert gpu.state() is State.UNKNOWN
    gpu.look(idle(fabric=None))
    assert gpu.state() is State.READY


whatever = st.fixed_dictionaries(
    {name: st.sampled_from((*values, None, BROKEN)) for name, values in HARMLESS.items()}
)
harmless = st.fixed_dictionaries(
    {name: st.sampled_from((*values, None)) for name, values in HARMLESS.items()}
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(whatever, st.booleans()), max_size=12), harmless)
def test_whatever_failed_a_gpu_that_has_nothing_is_not_withheld_once_it_was_looked_at(
    before, after
):
    gpu = Polled()
    for readings, whole in before:
        gpu.look(readings, whole=whole)
    gpu.look_for(SLOW * PERIOD, after)
    assert not gpu.state(later=HOUR).withheld
    assert not gpu.node.names() & {*UNREAD.values()}
