"""Devices that are withheld, at servers that store all of their taints, some, or none."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

import pytest

from api.resource.types import Taint, TaintEffect
from driver.core.choices import Choices
from driver.core.ids import DeviceName
from driver.core.live import Foreign
from driver.core.modes import Mode, Rule
from driver.core.snapshot import GpuFacts, MigState
from hack.fakeapi.faults import Answer
from hack.fakeapi.scheduler import Unschedulable
from hack.fakeapi.strategy import Settings
from tests.plugin.nodes import mig_gpu, partition
from tests.plugin.publishing import Bench, Make
from tests.plugin.stubs import DRIVER, device, gpu

OFF = Settings(gates={"DRADeviceTaints": False})
BEFORE_NONE = Settings(
    git_version="v1.34.2", gates={"DRADeviceTaints": True, "DRAPartitionableDevices": True}
)
SAID = "this server drops taints"


def taint(family: str, effect: TaintEffect) -> tuple[Taint, ...]:
    return (Taint(key=f"{DRIVER}/{family}", value="xid-79", effect=effect),)


FAULT = taint("fault", TaintEffect.NO_SCHEDULE)
DEGRADED = taint("degraded", TaintEffect.NONE)


def withhold(bench: Bench, taints: Mapping[str, tuple[Taint, ...]]) -> None:
    found = {DeviceName(name): each for name, each in taints.items()}
    bench.publisher._sick = lambda: found


def published(bench: Bench) -> set[str]:
    return {d["name"] for s in bench.slices() for d in s["spec"].get("devices", ())}


def of_gpu(bench: Bench, number: int) -> dict[str, tuple[Taint, ...]]:
    return {n: FAULT for n in published(bench) if n.startswith(device(number))}


def test_without_taints_what_is_withheld_and_not_held_is_left_out(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    bench = make(mig_gpu(0), mig_gpu(1))
    everything = published(bench)
    bench.server.cluster.settings = OFF
    (held,) = bench.allocate("1g.10gb")
    sick = of_gpu(bench, 0)
    assert held in sick
    withhold(bench, sick)
    bench.look()
    assert published(bench) == everything - sick.keys() | {held}
    bench.writes()
    for _ in range(3):
        bench.look()
    assert bench.writes() == 0
    assert caplog.text.count(SAID) == 1
    bench.release("c0")
    bench.look()
    assert held not in published(bench)
    withhold(bench, {})
    bench.look()
    assert published(bench) == everything
    assert caplog.text.count(SAID) == 1


def test_with_taints_nothing_is_left_out_and_one_creation_is_tried(make: Make) -> None:
    bench = make()
    everything = published(bench)
    bench.writes()
    withhold(bench, {device(0): FAULT})
    bench.look()
    withhold(bench, {device(0): FAULT + DEGRADED})
    bench.look()
    assert bench.tainted() == {device(0): ["fault", "degraded"]}
    assert published(bench) == everything
    assert [r.verb for r in bench.server.requests.writes()] == ["create", "update", "update"]


def test_the_places_of_foreign_instances_are_left_out_as_well(make: Make) -> None:
    bench = make()
    bench.server.cluster.settings = OFF
    foreign = Foreign(gpu=gpu(0).uuid, instance=5, slots=0b1111_0000)
    bench.hardware.found(bench.inventory, (foreign,))
    bench.look()
    assert partition(0, "1g.10gb", 3) in published(bench)
    assert published(bench).isdisjoint({partition(0, "1g.10gb", 4), device(0)})


def test_a_server_before_135_is_sent_no_effect_that_it_would_refuse(make: Make) -> None:
    bench = make()
    bench.server.cluster.settings = BEFORE_NONE
    withhold(bench, {device(0): FAULT + DEGRADED, partition(0, "1g.10gb", 3): DEGRADED})
    bench.look()
    assert bench.problems[-1] == ""
    assert bench.tainted() == {device(0): ["fault"]}
    bench.writes()
    bench.look()
    assert bench.writes() == 0


def test_a_server_that_is_away_has_dropped_nothing(make: Make) -> None:
    bench = make()
    withhold(bench, {device(0): FAULT})
    bench.server.fail(Answer(status=503, reason="ServiceUnavailable"), verb="create", times=1)
    bench.look()
    assert bench.tainted() == {}
    bench.look()
    assert bench.tainted() == {device(0): ["fault"]}


def test_taints_that_are_dropped_later_on_are_noticed_at_the_next_write(make: Make) -> None:
    bench = make()
    withhold(bench, {device(0): FAULT})
    bench.look()
    bench.server.cluster.settings = OFF
    withhold(bench, dict.fromkeys(published(bench), FAULT))
    bench.server.cluster.delete("resourceslices", bench.slices()[-1]["metadata"]["name"])
    looks = bench.run()
    assert looks.acquire(timeout=10)
    assert looks.acquire(timeout=10)
    assert published(bench) == set()
    bench.writes()
    assert not looks.acquire(timeout=0.3)
    assert bench.writes() == 0


def test_where_nothing_can_be_tried_the_first_write_tells(make: Make) -> None:
    bench = make()
    bench.server.cluster.settings = OFF
    bench.server.fail(Answer(status=400, reason="BadRequest"), verb="create", times=2)
    withhold(bench, {device(0): FAULT})
    bench.look()
    bench.look()
    assert device(0) not in published(bench)
    bench.writes()
    bench.look()
    assert bench.writes() == 0


BLIND = MigState(capable=True, enabled=True, pending=True, switchable=True)


@pytest.mark.parametrize(
    ("now", "choices"),
    [
        (mig_gpu(0), Choices(rules=(Rule(mode=Mode.FULL, index=0),))),
        (replace(mig_gpu(0), mig=BLIND), Choices()),
        (mig_gpu(0), Choices(profiles=("1g.10gb+me",))),
    ],
    ids=["mode full", "not to be read", "profile not listed"],
)
def test_a_partition_in_use_keeps_its_gpu_also_when_a_new_plugin_does_not_offer_it(
    make: Make, now: GpuFacts, choices: Choices
) -> None:
    (held,) = make(mig_gpu(0)).allocate("1g.10gb")
    bench = make(now, choices=choices)
    assert bench.heard.acquire(timeout=10)  # of what was allocated before
    assert held in published(bench)
    with pytest.raises(Unschedulable):
        bench.allocate("gpu")
    bench.release("c0")
    bench.look()
    assert held not in published(bench)
