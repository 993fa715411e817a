"""The GPUs of a node are remembered over restarts and boots, until one is known to be gone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from driver.core.health.acknowledge import NotAcknowledged, check
from driver.core.health.evidence import begun
from driver.core.health.gpus import MOST, found
from driver.core.health.items import Evidence, Identity, KnownGpu
from driver.core.health.readings.node import weigh_node
from driver.core.health.readings.over_time import Limits
from driver.core.health.readings.values import NodeReadings
from driver.core.health.signals import NODE, CannotTell, Need, Signal, Source
from driver.core.health.weight import weighs_alike
from driver.core.ids import GpuUuid
from driver.core.snapshot import PciAddress
from tests.unit.core.health.given_health import G0, G1, Node, ack, fault

P = Source.POLL
EMPTY = Identity()


def at(bus: int, serial: str = "", minor: int = 0) -> KnownGpu:
    return KnownGpu(pci=PciAddress(domain=0, bus=bus, device=0), minor=minor, serial=serial)


def missing(*signals: Signal) -> Node:
    """A plugin that started when the first of two GPUs was gone."""
    node = Node(identity=EMPTY)
    node.evidence = found(node.evidence, {G0: at(1, "s0"), G1: at(2)})
    return node.live(fault("gpu-missing", at=10, by=P), *signals)


def test_what_is_read_again_is_no_news_and_what_is_new_is_stored_at_once() -> None:
    one = found(Evidence(), {G0: at(1)})
    assert found(one, {G0: at(1)}) is one
    assert found(one, {}) is one
    assert not weighs_alike(one, found(one, {G1: at(2)}))


def test_a_gpu_that_does_not_answer_stays_and_one_whose_place_another_has_goes() -> None:
    both = found(Evidence(), {G0: at(1), G1: at(2)})
    assert found(both, {G1: at(2)}).gpus.keys() == {G0, G1}
    assert found(both, {G1: at(1)}).gpus == {G1: at(1)}
    assert found(both, {G0: at(2), G1: at(1)}).gpus == {G0: at(2), G1: at(1)}


def test_a_gpu_that_was_replaced_is_not_missed_any_more_but_what_it_had_stays() -> None:
    node = missing(fault("xid-79", Need.REBOOT, 11))
    after = found(node.evidence, {GpuUuid("GPU-new"): at(1)})
    assert [item.name for item in after.items.values()] == ["xid-79"]


def test_a_serial_number_that_cannot_be_read_once_is_not_lost() -> None:
    known = found(Evidence(), {G0: at(1, "s0")})
    assert found(known, {G0: at(1)}) is known


def test_in_another_boot_minor_numbers_mean_nothing_and_addresses_do() -> None:
    known = found(begun(Evidence(), boot_id="a", now=1), {G0: at(1, minor=3)})
    assert begun(known, boot_id="a", now=2).gpus == known.gpus
    assert begun(known, boot_id="b", now=2).gpus == {G0: replace(at(1), minor=None)}


def test_however_many_gpus_come_and_go_the_newest_are_known() -> None:
    evidence = Evidence()
    for n in range(2 * MOST):
        evidence = found(evidence, {GpuUuid(f"GPU-{n}"): at(n)})
    assert [*evidence.gpus] == [GpuUuid(f"GPU-{n}") for n in range(MOST, 2 * MOST)]


def test_a_board_that_was_taken_out_is_forgotten_when_an_operator_says_so() -> None:
    node = missing()
    with pytest.raises(NotAcknowledged, match="serial number is s0"):
        check(node.evidence, ack("gpu-missing", 20, serial="another"), EMPTY)
    node.live(ack("gpu-missing", 20, serial="s0"))
    assert node.evidence.items == {}
    assert node.evidence.gpus.keys() == {G1}


def test_a_gpu_that_is_lost_and_still_there_is_not_acknowledged_away() -> None:
    node = Node(identity=EMPTY)
    node.evidence = found(node.evidence, {G0: at(1, "s0")})
    node.live(fault("gpu-lost", at=10, by=P))
    with pytest.raises(NotAcknowledged, match="a reset"):
        check(node.evidence, ack("gpu-lost", 20, serial="s0"), EMPTY)


def test_d20_gpus_on_the_bus_of_which_nvml_has_none_cannot_be_told() -> None:
    bus = (PciAddress(domain=0, bus=1, device=0),)
    look = NodeReadings(at=5.0, branch=580, gpus={}, uncounted=bus)
    (said,), _ = weigh_node(look, {}, Limits())
    assert isinstance(said, CannotTell)
    assert (said.scope, said.name) == (NODE, "nvml")
    assert "0000:01:00.0" in said.detail
