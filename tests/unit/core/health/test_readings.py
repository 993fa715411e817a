"""From what was read to what is said: tables of states, and histories by a clock of our own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from driver.core.health.readings.node import GpuMemory, Memories, weigh_failure, weigh_node
from driver.core.health.readings.over_time import History, Limits, weigh_times
from driver.core.health.readings.state import weigh_states
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
from driver.core.health.signals import CannotTell, Fault, Need, ResetSeen, Signal, Well
from driver.core.ids import GpuUuid
from driver.core.snapshot import PciAddress

GPU, OTHER = GpuUuid("GPU-a"), GpuUuid("GPU-b")
BROKEN = Failed(trouble=Trouble.OTHER, text="it failed")
FAST = PcieLink(width=16, max_width=16, generation=5, max_generation=5)
SLOW = replace(FAST, width=8)
GIB = 1 << 30


def look(at: float = 0.0, **readings: Any) -> GpuReadings:
    return GpuReadings(gpu=GPU, at=at, **readings)


def faults(signals: list[Signal]) -> dict[str, Need]:
    return {s.name: s.need for s in signals if isinstance(s, Fault)}


def names(signals: list[Signal], kind: type[Fault | Well | CannotTell]) -> set[str]:
    return {s.name for s in signals if isinstance(s, kind)}


def states(**readings: Any) -> list[Signal]:
    return weigh_states(look(**readings), 580)


# -- one look


def test_what_a_board_does_not_have_says_nothing() -> None:
    assert weigh_states(look(), 580) == []
    assert weigh_times(look(), History(), Limits())[0] == []


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        ({"recovery": 0}, {}),
        ({"recovery": 1}, {"recovery-action": Need.RESET}),
        ({"recovery": 7}, {"recovery-action": Need.REBOOT}),
        ({"recovery": 5}, {"recovery-action": Need.RESET}),
        ({"recovery": 99}, {"recovery-action": Need.RESET}),
        ({"uncorrected": 0}, {}),
        ({"uncorrected": 1}, {"ecc-uncorrected": Need.RESET}),
        ({"uncorrected": 1, "recovery": 0}, {"ecc-uncorrected": Need.WATCH}),
        ({"uncorrected": 1, "recovery": 1},
         {"ecc-uncorrected": Need.RESET, "recovery-action": Need.RESET}),
        ({"uncorrected": 1, "rows": Rows(uncorrectable=1, pending=True, failure=False)},
         {"ecc-uncorrected": Need.WATCH, "row-remap-pending": Need.WATCH}),
        ({"rows": Rows(uncorrectable=9, pending=True, failure=True)},
         {"row-remap-failure": Need.OPERATOR, "row-remap-pending": Need.WATCH}),
        ({"rows": Rows(uncorrectable=9, pending=False, failure=False)}, {}),
        ({"sram_threshold": True}, {"sram-threshold": Need.OPERATOR}),
        ({"pages": Pages(double_bit=15, pending=False)}, {}),
        ({"pages": Pages(double_bit=16, pending=False)}, {"page-retirement": Need.WATCH}),
        ({"pages": Pages(double_bit=63, pending=True)},
         {"page-retirement": Need.OPERATOR, "page-retirement-pending": Need.WATCH}),
        ({"repairs": Repairs(channel=True, tpc=False)}, {"repair-pending": Need.WATCH}),
        ({"unrepairable": True}, {"unrepairable-memory": Need.OPERATOR}),
        ({"inforom_well": False}, {"inforom-corrupt": Need.RESET}),
        ({"mig": ModePair(current=True, pending=False)}, {"mig-mode-pending": Need.WATCH}),
        ({"pcie": SLOW}, {}),
        ({"pcie": SLOW, "load": 5}, {}),
        ({"pcie": SLOW, "load": 90}, {"pcie-link": Need.WATCH}),
        ({"pcie": replace(FAST, generation=1), "load": 0}, {}),
        ({"pcie": replace(FAST, generation=4), "load": 50}, {"pcie-link": Need.WATCH}),
        ({"pcie": SLOW, "clocks": Clocks(idle=True)}, {}),
        ({"pcie": SLOW, "clocks": Clocks(idle=False)}, {"pcie-link": Need.WATCH}),
        ({"pcie": FAST, "load": 90}, {}),
        ({"fabric": Fabric(ready=False, unhealthy=True)}, {}),
        ({"fabric": Fabric(ready=True)}, {}),
        ({"fabric": Fabric(ready=True, degraded=True)}, {"fabric-health": Need.WATCH}),
        ({"fabric": Fabric(ready=True, status=999)}, {"fabric-health": Need.RESET}),
        ({"fabric": Fabric(ready=True, unhealthy=True, degraded=True)},
         {"fabric-health": Need.RESET}),
        ({"fabric": Fabric(ready=True, misconfigured=True)}, {"fabric-health": Need.OPERATOR}),
    ],
)  # fmt: skip
def test_what_each_state_asks_for(readings, expected) -> None:
    assert faults(states(**readings)) == expected


@pytest.mark.parametrize("field", [*UNREAD, "load"])
def test_of_what_could_not_be_read_or_was_not_asked_no_state_is_told(field) -> None:
    for reading in (BROKEN, NOT_ASKED):
        got = look(0.0, **{field: reading})
        assert weigh_states(got, 580) == []
        assert weigh_times(got, History(), Limits())[0] == []


# -- over time


def play(limits: Limits, *looks: GpuReadings) -> list[list[Signal]]:
    history, said = History(), []
    for each in looks:
        signals, history = weigh_times(each, history, limits)
        said.append(signals)
    return said


def test_a_lifetime_count_of_link_errors_is_none_and_a_rate_is() -> None:
    said = play(
        Limits(),
        look(0, link_errors={0: 1_000_000}),
        look(10, link_errors={0: 1_000_000}),
        look(20, link_errors={0: 1_000_900}),
        look(30, link_errors={0: 1_002_900}),
        look(40, link_errors={0: 0}),
        look(50, link_errors={0: 5}),
    )
    assert [faults(each) for each in said] == [
        *({}, {}, {}),
        {"nvlink-errors": Need.WATCH},
        *({}, {}),
    ]
    assert names(said[5], Well) == {"nvlink-errors"}


def test_a_recovery_of_a_link_that_failed_is_told_when_it_is_new() -> None:
    said = play(
        Limits(),
        look(0, link_failures={0: 7, 1: 0}),
        look(10, link_failures={0: 7, 1: 1}),
        look(20, link_failures={0: 7, 1: 1}),
    )
    assert [faults(each) for each in said] == [{}, {"nvlink-recovery": Need.WATCH}, {}]
    assert names(said[2], Well) == {"nvlink-recovery"}


def test_a_slowdown_counts_by_its_share_of_the_last_minutes() -> None:
    held, free = Clocks(idle=False, held_back=("power brake",)), Clocks(idle=False)
    limits = Limits(clocks=100)
    short = play(limits, *(look(at * 10, clocks=held if at < 3 else free) for at in range(10)))
    assert all(not faults(each) for each in short)
    lasting = play(limits, *(look(at * 10, clocks=held) for at in range(10)))
    assert faults(lasting[-1]) == {"clock-slowdown": Need.WATCH}
    assert all(not faults(each) for each in lasting[:4])  # too early to say
    over = play(limits, *(look(at * 10, clocks=held if at < 10 else free) for at in range(25)))
    assert names(over[-1], Well) == {"clock-slowdown"}


def test_joining_a_fabric_may_take_its_time_but_not_for_ever() -> None:
    waiting, ready = Fabric(ready=False), Fabric(ready=True)
    said = play(
        Limits(fabric=300),
        look(0, fabric=waiting),
        look(299, fabric=waiting),
        look(300, fabric=waiting),
        look(310, fabric=ready),
        look(320, fabric=waiting),
    )
    assert [names(each, CannotTell) for each in said] == [
        *(set(), set()),
        {"fabric-state"},
        *(set(), set()),
    ]
    assert names(said[3], Well) == {"fabric-state"}


def test_a_link_is_missed_after_it_was_up_or_where_there_are_switches() -> None:
    up, one_down, down = {0: True, 1: True}, {0: True, 1: False}, {0: False, 1: False}
    fabric = Fabric(ready=True)
    bare = play(Limits(), look(0, links=down), look(1, links=down))
    assert bare == [[], []]
    bridged = play(Limits(), look(0, links=up), look(1, links=one_down), look(2, links=down))
    assert [faults(each) for each in bridged] == [
        {},
        {"nvlink-down": Need.WATCH},
        {"nvlink-down": Need.RESET},
    ]
    switched = play(Limits(), look(0, links=one_down, fabric=fabric))
    assert faults(switched[0]) == {"nvlink-down": Need.RESET}
    with_mig = look(0, links=down, fabric=fabric, mig=ModePair(current=True, pending=True))
    assert not faults(play(Limits(), with_mig)[0])


def test_memory_counts_as_left_over_only_if_nobody_could_have_it_for_a_while() -> None:
    used = MemoryUse(used=8 * GIB, total=80 * GIB, processes=0)
    busy = replace(used, processes=1)
    said = play(
        Limits(leak=60),
        look(0, memory=used, held=True),
        look(100, memory=used, held=False),
        look(159, memory=used, held=False),
        look(160, memory=used, held=False),
        look(170, memory=busy, held=False),
        look(180, memory=used, held=False),
    )
    assert [faults(each) for each in said] == [
        *({}, {}, {}),
        {"memory-leftover": Need.WATCH},
        *({}, {}),
    ]


def test_looks_that_ask_less_neither_hide_memory_left_over_nor_outlast_a_claim() -> None:
    used = MemoryUse(used=8 * GIB, total=80 * GIB, processes=0)

    def left_over(*between: GpuReadings) -> bool:
        said = play(
            Limits(leak=60),
            look(0, memory=used, held=False),
            *between,
            look(60, memory=used, held=False),
        )
        return bool(faults(said[-1]))

    assert left_over(look(30, memory=NOT_ASKED, held=False))
    assert left_over(look(30, memory=BROKEN, held=False))
    assert not left_over(look(30, memory=None, held=True))


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 2**40), st.booleans()), max_size=40))
def test_histories_stay_bounded_and_nothing_raises_however_the_clock_jumps(steps) -> None:
    history, limits = History(), Limits(clocks=100)
    for at, count, flag in steps:
        got = look(
            at,
            links={0: flag},
            link_errors={0: count},
            clocks=Clocks(idle=flag, held_back=("power brake",)),
            fabric=Fabric(ready=flag),
            memory=MemoryUse(used=count, total=2**40, processes=0),
            held=flag,
        )
        _, history = weigh_times(got, history, limits)
        assert all(0 <= at - seen < limits.clocks for seen, _ in history.clock_looks)


# -- the node


def node(
    at: float = 0.0,
    uncounted: tuple[PciAddress, ...] = (),
    **gpus: GpuReadings | Failed,
) -> NodeReadings:
    by_id = {GpuUuid(f"GPU-{name}"): got for name, got in gpus.items()}
    places = {gpu: PciAddress(domain=0, bus=0x3B, device=0) for gpu in by_id}
    return NodeReadings(at=at, branch=580, gpus=by_id, places=places, uncounted=uncounted)


def weigh(got: NodeReadings, memories: Memories | None = None) -> tuple[list[Signal], Memories]:
    return weigh_node(got, memories or {}, Limits())


WELL = look(recovery=0)


@pytest.mark.parametrize(
    ("trouble", "name", "need"),
    [
        (Trouble.LOST, "gpu-lost", Need.RESET),
        (Trouble.RESET_REQUIRED, "reset-required", Need.RESET),
        (Trouble.MISSING, "gpu-missing", Need.RESET),
        (Trouble.POWER, "power-cable", Need.OPERATOR),
        (Trouble.INTERRUPTS, "gpu-interrupts", Need.PROBE),
    ],
)
def test_a_gpu_that_does_not_answer_says_by_its_code_what_it_is(trouble, name, need) -> None:
    signals, memories = weigh(node(a=Failed(trouble=trouble, text="x"), b=WELL))
    assert faults(signals) == {name: need}
    signals, _ = weigh(node(a=WELL, b=WELL), memories)
    assert faults(signals) == {}
    assert name in names(signals, Well)


def test_a_missing_gpu_is_named_with_where_it_was() -> None:
    signals, _ = weigh(node(a=Failed(trouble=Trouble.MISSING, text="no such GPU")))
    (fault,) = [s for s in signals if isinstance(s, Fault)]
    assert GPU in fault.detail
    assert "0000:3b:00.0" in fault.detail


def test_an_unknown_error_is_of_the_gpu_or_of_the_node_if_all_have_it() -> None:
    one, _ = weigh(node(a=BROKEN, b=WELL))
    assert [s.scope.gpu for s in one if isinstance(s, CannotTell)] == [GPU]
    every, _ = weigh(node(a=BROKEN, b=BROKEN))
    assert [(s.scope.gpu, s.name) for s in every if isinstance(s, CannotTell)] == [(None, "nvml")]
    assert weigh_failure(BROKEN, 0.0)[0].at == 0.0


def test_what_all_gpus_are_is_said_of_each_if_it_is_their_own() -> None:
    lost = Failed(trouble=Trouble.LOST, text="lost")
    signals, _ = weigh(node(a=lost, b=lost))
    assert {s.scope.gpu for s in signals if isinstance(s, Fault)} == {GPU, OTHER}


@pytest.mark.parametrize(
    ("before", "after", "seen"),
    [
        (GpuMemory(trouble=Trouble.LOST), WELL, True),
        (GpuMemory(trouble=Trouble.RESET_REQUIRED), WELL, True),
        (GpuMemory(trouble=Trouble.OTHER), WELL, False),
        (GpuMemory(trouble=Trouble.POWER), WELL, False),
        (GpuMemory(action=1), WELL, True),
        (GpuMemory(action=2), WELL, True),
        (GpuMemory(action=3), WELL, False),
        (GpuMemory(action=1), look(recovery=3), False),
        (GpuMemory(action=1), look(recovery=BROKEN), False),
        (GpuMemory(), WELL, False),
    ],
)
def test_a_reset_is_seen_by_what_only_a_reset_ends(before, after, seen) -> None:
    signals, _ = weigh(node(a=after), {GPU: before})
    assert any(isinstance(s, ResetSeen) for s in signals) is seen


def test_an_advice_that_cannot_be_read_for_a_while_is_remembered() -> None:
    _, memories = weigh(node(a=look(recovery=1)))
    _, memories = weigh(node(a=look(recovery=BROKEN)), memories)
    signals, _ = weigh(node(a=WELL), memories)
    assert any(isinstance(s, ResetSeen) for s in signals)


def test_a_gpu_that_is_left_out_of_a_look_is_remembered() -> None:
    _, memories = weigh(node(a=Failed(trouble=Trouble.LOST, text="x"), b=WELL))
    _, memories = weigh(node(b=WELL), memories)
    signals, _ = weigh(node(a=WELL, b=WELL), memories)
    assert [s.gpu for s in signals if isinstance(s, ResetSeen)] == [GPU]


def test_a_gpu_on_the_bus_that_is_not_counted_is_shown_and_withholds_nothing() -> None:
    signals, _ = weigh(node(uncounted=(PciAddress(domain=0, bus=7, device=0),), a=WELL))
    assert faults(signals) == {"gpu-not-counted": Need.WATCH}
