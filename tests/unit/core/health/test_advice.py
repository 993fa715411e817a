"""What the GPU itself asks for, against what a fault needs by its name."""

from __future__ import annotations

import pytest

from driver.core.health.judgement import State
from driver.core.health.signals import Need, Signal, Source
from tests.unit.core.health.given_health import (
    cannot_tell,
    fault,
    lived,
    overruled,
    passed,
    well,
)

K, P, E = Source.KERNEL, Source.POLL, Source.EVENTS
READY, DEGRADED = State.READY, State.DEGRADED


def seen(need: Need, by: Source = K, at: float = 10.0) -> Signal:
    return fault("bad", need, at, by=by)


@pytest.mark.parametrize(
    ("signals", "state"),
    [
        ([passed(30)], State.RESET),
        ([well("recovery-action", 20)], State.RESET),
        ([well("recovery-action", 20), cannot_tell("recovery-action", 25)], State.RESET),
        ([well("recovery-action", 20), fault("probe-failed", at=30, by=Source.PROBE)], State.RESET),
        ([well("recovery-action", 20), passed(30)], READY),
    ],
)
def test_the_advice_gone_and_a_passed_probe_clear_all_that_a_reset_clears(signals, state):
    """Case S3. The advice goes back with a reset alone, so the other items may be proved too."""
    sick = [fault("xid-119", at=9), fault("recovery-action", at=10, by=P)]
    assert lived([*sick, *signals]).state() is state


def test_that_the_gpu_no_more_asks_for_a_reboot_says_nothing_of_a_reset():
    sick = [fault("xid-119", at=9), fault("recovery-action", Need.REBOOT, 10, by=P)]
    node = lived([*sick, well("recovery-action", 20), passed(30)])
    assert (node.names(), node.state()) == ({"xid-119"}, State.RESET)


def test_the_advice_of_a_log_line_ends_when_a_look_finds_none():
    told = fault("recovery-action", at=10, by=K)
    assert lived([told, well("recovery-action", 20), passed(30)]).state() is READY


def test_that_the_gpu_asks_for_nothing_proves_no_reset_where_it_never_asked_for_one():
    node = lived([fault("xid-119", at=10), well("recovery-action", 20), passed(30)])
    assert node.state() is State.RESET


def test_dcgm_and_the_kernel_log_disagree_and_the_gpu_decides():
    """Case D8: both stay visible; without the GPU's own word the graver one holds."""
    node = lived(
        [
            fault("xid-145", Need.RESET, 10, by=Source.DCGM),
            fault("xid-145", Need.WATCH, 10, by=K),
            well("recovery-action", 12),
        ]
    )
    assert node.state() is State.RESET
    node.live(well("recovery-action", 20))
    assert node.state() is DEGRADED
    assert {r.item.source for r in node.device().reasons} == {Source.DCGM, K}
    assert node.live(fault("xid-145", Need.RESET, 30, by=Source.DCGM)).state() is State.RESET


@pytest.mark.parametrize(
    ("signals", "state"),
    [
        ([seen(Need.RESET), overruled(20)], DEGRADED),
        ([seen(Need.RESET), overruled(20), passed(30)], READY),
        ([seen(Need.RESET), overruled(10), passed(30)], State.RESET),
        ([seen(Need.RESET), overruled(20, by=E), passed(30)], State.RESET),
        ([seen(Need.RESET), overruled(20), seen(Need.PROBE, at=25)], State.RESET),
        ([seen(Need.REBOOT), overruled(20), passed(30)], State.REBOOT),
        ([seen(Need.OPERATOR), overruled(20), passed(30)], State.OPERATOR),
        ([seen(Need.RESET), fault("recovery-action", at=15, by=P), overruled(20)], State.RESET),
    ],
)
def test_where_the_gpu_asks_for_no_reset_a_probe_decides(signals, state):
    """Case D16: the recovery action decides what the catalogue would have reset for."""
    assert lived(signals).state() is state


def test_the_gpus_word_overrules_nobody_but_dcgm():
    signals = [fault("xid-145", by=K, at=10), fault("xid-145", Need.WATCH, 10, by=E)]
    assert lived([*signals, well("recovery-action", 30)]).state() is State.RESET
