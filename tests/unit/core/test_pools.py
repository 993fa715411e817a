"""The order in which devices are offered, and how it is cut into slices."""

from dataclasses import replace

import pytest

from api.resource.limits import problems
from api.resource.types import Device, Taint, TaintEffect
from driver.core.errors import ContractError
from driver.core.inventory import build_inventory
from driver.core.pools import Kept, build_pool
from tests.unit.core.given import DRIVER, NODE, POOL, gpu, snapshot


def pool_of(count, *kept, node=NODE, driver=DRIVER):
    inventory = build_inventory(snapshot(*(gpu(n) for n in range(count))))
    return build_pool(inventory, driver=driver, node=node, kept=kept)


def kept(device, position=0, what="node-1-gpu.tessera.dev-00-gpus"):
    return Kept(slice=what, position=position, device=device)


def layout(pool):
    return [[d.name for d in s.devices] for s in pool.slices]


def test_whole_gpus_are_offered_from_the_last_one_down():
    pool = pool_of(3)
    assert (pool.driver, pool.node, pool.name) == (DRIVER, NODE, POOL)
    assert [s.name for s in pool.slices] == ["node-1-gpu.tessera.dev-00-gpus"]
    assert layout(pool) == [["gpu-00000002", "gpu-00000001", "gpu-00000000"]]


def test_a_node_without_a_gpu_says_so_with_one_empty_slice():
    assert layout(pool_of(0)) == [[]]


@pytest.mark.parametrize(
    ("count", "sizes"), [(1, [1]), (64, [64]), (65, [64, 1]), (128, [64, 64]), (130, [64, 64, 2])]
)
def test_a_slice_holds_at_most_64_so_that_the_first_taint_fits(count, sizes):
    pool = pool_of(count)
    assert [len(s.devices) for s in pool.slices] == sizes
    assert [s.name for s in pool.slices] == sorted(s.name for s in pool.slices)


def test_a_device_in_use_that_is_gone_stays_as_it_was_and_where_it_was():
    fault = Taint(key="gpu.tessera.dev/fault", value="lost", effect=TaintEffect.NO_SCHEDULE)
    before = pool_of(3)
    lost = replace(before.slices[0].devices[1], taints=(fault,))
    stood = kept(lost, position=1)
    found = build_inventory(snapshot(gpu(0), gpu(2)))
    pool = build_pool(found, driver=DRIVER, node=NODE, kept=[stood, stood])
    assert layout(pool) == layout(before) == [["gpu-00000002", "gpu-00000001", "gpu-00000000"]]
    assert pool.slices[0].devices[1] == lost


def test_a_device_that_is_kept_and_found_is_published_as_found():
    stale = Device(name="gpu-00000000", capacity=(("memory", 1),))
    assert pool_of(1, kept(stale)) == pool_of(1)


def test_a_pool_that_breaks_the_api_is_refused_with_every_rule_that_it_breaks():
    with pytest.raises(ContractError, match="pool node-1/tessera is not published") as refusal:
        pool_of(1, kept(Device(name="GPU_0")), driver="Tessera")
    assert "device name 'GPU_0' is not a DNS label" in str(refusal.value)
    assert "driver name 'Tessera'" in str(refusal.value)


@pytest.mark.parametrize("length", [63, 245, 246, 253])
def test_any_node_name_of_kubernetes_gives_a_pool_that_may_be_written(length):
    assert list(problems(pool_of(1, node="n" * length))) == []
