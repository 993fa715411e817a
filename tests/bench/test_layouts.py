"""What the scheduler benchmark compares is what both drivers would publish."""

from collections import Counter

import pytest

from api.resource.codec import NodeOwner
from api.resource.limits import problems
from tests.bench import scheduler
from tests.bench.bare import WHOLE
from tests.bench.layouts import NVIDIA, OURS, SMALLEST, nvidia_pool, our_pool

OWNER = NodeOwner(name="n", uid="u")


@pytest.mark.parametrize(
    ("pool", "slices", "devices"), [(our_pool("n"), 4, 144), (nvidia_pool("n"), 9, 208)]
)
def test_both_pools_keep_the_limits_of_the_api(pool, slices, devices):
    assert list(problems(pool)) == []
    assert len(pool.slices) == slices
    assert sum(len(s.devices) for s in pool.slices) == devices


def test_the_likeness_has_what_nvidias_driver_writes_on_a_partition():
    (first, *_) = (s for s in nvidia_pool("n").slices if s.devices)
    names = [d.name for d in first.devices]
    assert names == sorted(names)
    partition = next(d for d in first.devices if d.name == "gpu-0-mig-1g10gb-19-0")
    assert len(partition.attributes) == 13
    assert len(partition.capacity) == 7
    (whole,) = (d for d in first.devices if d.name == "gpu-0")
    assert len(whole.consumes[0].counters) == 15


@pytest.mark.parametrize("layout", [OURS, NVIDIA], ids=lambda each: each.driver)
def test_what_is_held_is_published_and_fills_the_gpus(layout):
    held = layout.held("n", 4)
    published = {d["name"] for s in layout.slices(OWNER, 4) for d in s["spec"].get("devices", ())}
    assert len(set(held)) == 4 * len(SMALLEST.starts)
    assert set(held) <= published


def test_ours_offers_what_is_free_first():
    held = set(OURS.held("n", 4))
    small = next(s for s in our_pool("n", 4).slices if s.name.endswith("small"))
    assert {d.name for d in small.devices[-len(held) :]} == held


def test_every_kind_comes_equally_often_and_always_in_the_same_order():
    for scenario in scheduler.SCENARIOS:
        kinds = scheduler.wanted(scenario)
        assert kinds == scheduler.wanted(scenario)
        assert set(Counter(kinds).values()) == {scenario.pods // len(scenario.kinds)}
    assert WHOLE in scheduler.MIX
