"""The slices of a node that follow its hardware and its claims, over HTTP, one look at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from driver.core.choices import Choices
from driver.core.ids import CdiId, ClaimUID, DeviceName, PoolName
from driver.core.inventory import build_inventory
from driver.core.ledger import Entry, Holding, Slot
from driver.core.live import Foreign
from driver.plugin.publishing import (
    publisher as publishing,
    stored as publish_stored,
    writes as publish_writes,
)
from hack.fakeapi.faults import Answer
from tests.plugin.nodes import mig_gpu, mig_snapshot, partition
from tests.plugin.publishing import PROFILES, Bench, Make
from tests.plugin.stubs import POOL, device, gpu


def test_a_start_on_what_is_published_already_writes_nothing(make: Make) -> None:
    first = make()
    assert first.metrics.devices == 1 + 17
    assert first.generations() == {1}
    first.allocate("1g.10gb")
    first.look()
    first.writes()
    second = make()
    assert second.writes() == 0
    assert second.look() == 600.0


def lopsided(make: Make) -> Bench:
    """GPU 0 was full and is idle again, which is not published yet; GPU 1 is in use."""
    bench = make(mig_gpu(0), mig_gpu(1))
    places = bench.allocate("3g.40gb", "3g.40gb", "1g.10gb")
    assert [name.rpartition("-mig-")[0] for name in places] == [device(0), device(0), device(1)]
    bench.look()
    bench.release("c0", "c1")
    bench.writes()
    return bench


def test_the_order_follows_what_is_in_use_at_the_same_generation(make: Make) -> None:
    bench = lopsided(make)
    assert bench.order("2g.20gb")[0].startswith(device(0))
    bench.look()
    assert bench.writes() == 3
    assert bench.generations() == {1}
    for kind in PROFILES:
        assert bench.order(kind)[0].startswith(device(1)), kind
    assert bench.metrics.chosen == [True, True, True]


def test_an_order_that_still_leads_to_the_best_device_is_not_written(make: Make) -> None:
    bench = make(mig_gpu(0), mig_gpu(1))
    bench.writes()
    for kind in PROFILES:
        bench.allocate(kind)
        bench.look()
    assert bench.writes() == 0
    assert bench.metrics.chosen == [True] * 5


def test_an_allocation_that_the_policy_would_not_have_made_is_counted(make: Make) -> None:
    bench = lopsided(make)
    bench.allocate("2g.20gb")
    bench.look()
    assert bench.metrics.chosen == [True, True, True, False]


def test_after_a_burst_the_static_order_stands_until_it_is_quiet(make: Make) -> None:
    bench = lopsided(make)
    static = {kind: bench.order(kind) for kind in (*PROFILES, "gpu")}
    assert bench.look() == 0.1
    assert bench.order("1g.10gb") != static["1g.10gb"]
    bench.allocate(*["1g.10gb"] * 4)
    assert bench.look() == 0.1
    assert {kind: bench.order(kind) for kind in static} == static
    assert bench.look() == 600.0
    assert {kind: bench.order(kind) for kind in static} != static
    assert bench.generations() == {1}
    bench.writes()
    bench.look()
    assert bench.writes() == 0


def test_an_order_that_never_changes_follows_no_claims(make: Make) -> None:
    bench = make(choices=Choices(follow=False))
    bench.writes()
    bench.allocate("3g.40gb", "1g.10gb")
    assert bench.look() == 600.0
    assert bench.writes() == 0
    assert bench.server.requests.all("list", "resourceclaims") == []


def test_somebody_elses_write_in_between_is_no_failure_and_is_read_again(make: Make) -> None:
    bench = lopsided(make)
    bench.server.fail(Answer(status=409, reason="Conflict"), verb="update", times=1)
    assert bench.look() == 9.0
    assert bench.problems[-1] == ""
    assert bench.look() == 600.0
    assert bench.order("1g.10gb")[0].startswith(device(1))


def test_a_refusal_is_told_until_it_is_over(make: Make) -> None:
    bench = lopsided(make)
    bench.server.fail(Answer(status=422, reason="Invalid"), verb="update", times=1)
    assert bench.look() == 600.0
    assert "422" in bench.problems[-1]
    bench.look()
    assert bench.problems[-1] == ""


def test_a_foreign_instance_taints_what_it_overlaps_and_nothing_else(make: Make) -> None:
    bench = make()
    (held,) = bench.allocate("1g.10gb")
    bench.look()
    bench.hardware.found(
        bench.inventory, (Foreign(gpu=gpu(0).uuid, instance=5, slots=0b1111_0000),)
    )
    bench.look()
    overlapping = [
        *(partition(0, "1g.10gb", start) for start in (4, 5, 6)),
        *(partition(0, "1g.20gb", start) for start in (4, 6)),
        partition(0, "2g.20gb", 4),
        partition(0, "3g.40gb", 4),
        device(0),
    ]
    assert bench.tainted() == {name: ["foreign"] for name in overlapping}
    # As the commands that explain a device are told.
    assert {name for name, taints in bench.publisher.taints.items() if taints} == set(overlapping)
    assert held in bench.order("1g.10gb")
    bench.hardware.found(bench.inventory)
    bench.look()
    assert bench.tainted() == {}


def prepared(claim: str, number: int, start: int, boot: str = "boot-1") -> dict[ClaimUID, Entry]:
    """What the ledger holds of a claim for a 3g.40gb."""
    holding = Holding(
        request="r",
        pool=PoolName(POOL),
        device=DeviceName(partition(number, "3g.40gb", start)),
        gpu=gpu(number).uuid,
        cdi_id=CdiId("c"),
        slot=Slot(profile="3g.40gb", start=start, size=4, ours=True),
    )
    uid = ClaimUID(f"uid-{claim}")
    return {
        uid: Entry(uid=uid, namespace="n", name=claim, boot_id=boot, holdings=(holding,)),
    }


@pytest.mark.parametrize(("boot", "first"), [("boot-1", 1), ("boot-0", 0)])
def test_what_still_runs_here_takes_its_slots_but_not_what_ran_before_the_boot(
    make: Make, boot: str, first: int
) -> None:
    bench = make(mig_gpu(0), mig_gpu(1))
    # Its claim is gone from the API.
    bench.entries = prepared("c", 1, 4, boot)
    bench.look()
    assert bench.order("1g.10gb")[0].startswith(device(first))


def test_the_order_expects_the_end_of_claims_that_the_kubelet_has_given_back(make: Make) -> None:
    bench = make(mig_gpu(0), mig_gpu(1))
    bench.allocate("3g.40gb", "3g.40gb", "1g.10gb")
    bench.entries = prepared("c0", 0, 4) | prepared("c1", 0, 0)
    bench.look()
    assert bench.order("2g.20gb")[0].startswith(device(0))
    bench.entries = {}
    bench.look()
    assert bench.order("2g.20gb")[0].startswith(device(1))
    bench.writes()
    bench.release("c0", "c1")
    bench.look()
    assert bench.writes() == 0
    assert bench.allocate("2g.20gb")[0].startswith(device(1))


def test_a_lost_gpu_takes_its_devices_along_but_for_those_in_use(make: Make) -> None:
    bench = make(mig_gpu(0), mig_gpu(1))
    (held,) = bench.allocate("1g.10gb")
    bench.look()
    before = {d["name"]: d for s in bench.slices() for d in s["spec"].get("devices", ())}
    bench.writes()
    bench.hardware.found(build_inventory(mig_snapshot(mig_gpu(1))))
    bench.look()
    left = {d["name"]: d for s in bench.slices() for d in s["spec"].get("devices", ())}
    assert {n for n in left if n.startswith(device(0))} == {held}
    assert left[held] == before[held]
    sets = {c["name"] for s in bench.slices() for c in s["spec"].get("sharedCounters", ())}
    assert sets == {gpu(0).uuid.lower(), gpu(1).uuid.lower()}
    assert bench.writes() == len(bench.slices())


def test_a_second_look_decodes_nothing_and_describes_nothing(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = lopsided(make)
    bench.look()
    assert bench.writes() == 3
    work: list[str] = []
    for module, name in (
        (publish_stored, "decode_stored"),
        (publish_writes, "encode_slice"),
        (publishing, "describe_node"),
    ):
        monkeypatch.setattr(module, name, counted(work, getattr(module, name)))
    bench.hardware.found(build_inventory(mig_snapshot(mig_gpu(0), mig_gpu(1))))
    bench.look()
    assert (work, bench.writes()) == ([], 0)
    bench.release("c2")
    bench.look()
    assert bench.writes() == 3
    # What we wrote is known; only its metadata is read.
    assert sorted(work) == ["decode_stored"] * 3 + ["encode_slice"] * 3
    assert bench.server.requests.all("get", "nodes") == []


def counted(work: list[str], function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*given: Any, **named: Any) -> Any:
        assert function.__name__ != "decode_stored" or named["content"] is not None
        work.append(function.__name__)
        return function(*given, **named)

    return call


def test_its_own_writes_wake_nobody_and_a_lost_slice_does(make: Make) -> None:
    bench = lopsided(make)
    bench.look()
    bench.writes()
    bench.release("c2")
    looks = bench.run()
    assert looks.acquire(timeout=10)
    assert not looks.acquire(timeout=0.3)
    assert bench.writes() == 3
    bench.server.cluster.delete("resourceslices", bench.slices()[0]["metadata"]["name"])
    assert looks.acquire(timeout=10)
    bench.server.requests.wait_for("create", "resourceslices")


def test_a_release_in_the_same_batch_counts_before_the_allocation_that_follows_it(
    make: Make,
) -> None:
    bench = make()
    bench.allocate("4g.40gb", "3g.40gb")
    bench.look()
    bench.release("c0")
    bench.allocate("4g.40gb")
    bench.look()
    assert bench.metrics.chosen == [True] * 3
