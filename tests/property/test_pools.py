"""From what NVML says in any order to the same bytes, always within the limits of the API."""

import json
from dataclasses import replace

from hypothesis import given, settings, strategies as st

from api.resource.codec import NodeOwner, encode_slice
from api.resource.limits import problems
from api.resource.types import Pool
from driver.core.ids import SliceName
from driver.core.inventory import build_inventory
from driver.core.pools import Kept, build_pool
from driver.core.snapshot import DriverFacts, NodeSnapshot
from tests.property.strategies import DRIVER, NODE, SNAPSHOTS, numbered_gpu

OWNER = NodeOwner(name=NODE, uid="node-a")
FULL = NodeSnapshot(
    driver=DriverFacts(driver="580.95.05"), gpus=tuple(numbered_gpu(n) for n in range(130))
)


def pool_of(snapshot: NodeSnapshot, kept: tuple[Kept, ...] = ()) -> Pool:
    return build_pool(build_inventory(snapshot), driver=DRIVER, node=NODE, kept=kept)


def as_bytes(pool: Pool) -> bytes:
    objects = [
        encode_slice(s, pool=pool, generation=1, owner=OWNER, version="v1") for s in pool.slices
    ]
    return json.dumps(objects).encode()


def names(pool: Pool) -> list[str]:
    return [d.name for s in pool.slices for d in s.devices]


@given(SNAPSHOTS, st.randoms())
def test_any_node_gives_a_legal_pool_and_the_same_bytes_in_any_order_of_finding(snapshot, random):
    pool = pool_of(snapshot)
    assert list(problems(pool)) == []
    assert len(names(pool)) == len(snapshot.gpus)
    shuffled = replace(snapshot, gpus=tuple(random.sample(snapshot.gpus, len(snapshot.gpus))))
    assert as_bytes(pool_of(shuffled)) == as_bytes(pool)


@settings(max_examples=40)
@given(st.integers(0, 130), st.integers(0, 130), st.randoms())
def test_up_to_130_gpus_are_offered_once_each_and_lost_ones_in_use_stay(count, in_use, random):
    gpus = tuple(random.sample(FULL.gpus, len(FULL.gpus)))
    before = pool_of(FULL)
    kept = tuple(
        Kept(slice=SliceName(s.name), position=i, device=d)
        for s in before.slices
        for i, d in enumerate(s.devices)
    )[:in_use]
    pool = pool_of(replace(FULL, gpus=gpus[:count]), kept)
    assert list(problems(pool)) == []
    assert all(len(s.devices) <= 64 for s in pool.slices)
    found = {f"gpu-{g.index:08x}" for g in gpus[:count]}
    assert sorted(names(pool)) == sorted(found | {k.device.name for k in kept})
    offered = [name for name in names(pool) if name in found]
    assert offered == [name for name in names(before) if name in found]
