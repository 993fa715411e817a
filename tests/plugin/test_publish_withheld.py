"""What is withheld, as the order counts on it: sick GPUs, GPUs kept whole, and what nobody sees."""

from __future__ import annotations

import pytest

from driver.core.choices import Choices
from driver.core.inventory import build_inventory
from driver.core.packing import Policy
from hack.fakeapi.scheduler import Unschedulable
from tests.plugin.nodes import mig_gpu, mig_snapshot, partition
from tests.plugin.publishing import Bench, Make
from tests.plugin.stubs import device
from tests.plugin.test_publish_taints import of_gpu, published, withhold
from tests.unit.core.given import entry


def step(bench: Bench, kind: str) -> str:
    """One claim, which the plugin follows."""
    (got,) = bench.allocate(kind)
    bench.look()
    return got


def test_the_room_of_a_sick_gpu_is_no_reason_to_open_an_idle_one(make: Make) -> None:
    """GPU 0 is in use and sick, GPU 1 idle, GPU 2 in use with room."""
    bench = make(*(mig_gpu(n) for n in range(4)))
    for _ in range(5):
        step(bench, "3g.40gb")
    bench.release("c1")
    bench.look()
    withhold(bench, of_gpu(bench, 0))
    bench.look()
    bench.release("c2", "c3")
    bench.look()
    assert bench.look() == 600.0
    assert step(bench, "2g.20gb").startswith(device(2))
    assert step(bench, "1g.10gb").startswith(device(2))
    assert step(bench, "gpu") == device(3)
    assert step(bench, "gpu") == device(1)
    assert bench.metrics.chosen == [True] * 9
    withhold(bench, {})
    bench.look()
    assert step(bench, "3g.40gb").startswith(device(0))


@pytest.mark.parametrize("policy", Policy)
def test_a_gpu_that_is_kept_whole_is_passed_over_in_every_order(make: Make, policy: Policy) -> None:
    bench = make(*map(mig_gpu, range(3)), choices=Choices(policy=policy, min_whole_gpus=1))
    bench.writes()
    for _ in range(6):
        assert not step(bench, "1g.10gb").startswith(device(2))
    assert bench.metrics.chosen == [True] * 6


def test_a_sick_gpu_is_none_of_those_that_are_kept_whole(make: Make) -> None:
    bench = make(*map(mig_gpu, range(3)), choices=Choices(min_whole_gpus=1))
    withhold(bench, of_gpu(bench, 2))
    bench.look()
    assert {n[: len(device(0))] for n, t in bench.tainted().items() if "kept" in t} == {device(1)}
    for _ in range(7):
        assert step(bench, "1g.10gb").startswith(device(0))
    with pytest.raises(Unschedulable):
        bench.allocate("1g.10gb")


def test_sixteen_gpus_are_packed_and_judged_eight_by_eight(make: Make) -> None:
    bench = make(*map(mig_gpu, range(16)))
    for _ in range(9):
        step(bench, "4g.40gb")
    for n in range(8):
        bench.release(f"c{n}")
        bench.look()
    # GPU 8 is in use, but its partitions stand behind those of the first eight.
    assert step(bench, "1g.10gb").startswith(device(0))
    assert bench.metrics.chosen == [True] * 10


def test_where_its_slice_is_gone_too_what_overlaps_a_device_in_use_is_for_nobody(
    make: Make,
) -> None:
    """The kubelet removes all slices when it starts; the new plugin does not list the profile."""
    first = make()
    (held,) = first.allocate("1g.10gb")
    for each in first.slices():
        first.server.cluster.delete("resourceslices", each["metadata"]["name"])
    bench = make(choices=Choices(profiles=("3g.40gb",)))
    assert held not in published(bench)
    assert bench.heard.acquire(timeout=10)  # of what was allocated before
    bench.allocate("3g.40gb")
    for kind in ("3g.40gb", "gpu"):
        with pytest.raises(Unschedulable):
            bench.allocate(kind)


def test_a_static_order_withholds_what_overlaps_a_prepared_device_that_is_not_offered(
    make: Make,
) -> None:
    bench = make(choices=Choices(follow=False, profiles=("3g.40gb",)))
    made = entry("a", build_inventory(mig_snapshot(mig_gpu(0))), partition(0, "1g.10gb", 6))
    bench.entries = {made.uid: made}
    bench.look()
    overlapping = device(0), partition(0, "3g.40gb", 4)
    assert bench.tainted() == {name: ["foreign"] for name in overlapping}
