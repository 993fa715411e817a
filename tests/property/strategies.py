"""Whatever a node and its neighbours may come up with, small enough to shrink well."""

from typing import Any

from hypothesis import strategies as st

from api.resource.codec import NodeOwner
from api.resource.types import (
    Attribute,
    Consumption,
    CounterSet,
    Device,
    Flag,
    Number,
    Pool,
    Slice,
    Taint,
    TaintEffect,
    Text,
    Version,
)
from driver.core.ids import GpuUuid
from driver.core.snapshot import DriverFacts, GpuFacts, MigState, NodeSnapshot, PciAddress

DRIVER, NODE, POOL = "gpu.tessera.dev", "node-1", "node-1/tessera"

OWNERS = st.sampled_from([NodeOwner(name=NODE, uid=uid) for uid in ("node-a", "node-b")])
LABELS = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,6}[a-z0-9])?", fullmatch=True)
AMOUNTS = st.one_of(
    st.integers(0, 2**63 - 1),
    st.builds(
        lambda n, unit: n * unit, st.integers(0, 2000), st.sampled_from([1000, 10**9, 2**20, 2**30])
    ),
)
UUIDS = st.uuids().map(lambda u: GpuUuid(f"GPU-{u}"))
NODE_NAMES = st.lists(
    st.from_regex(r"[a-z0-9]([-a-z0-9]{0,80}[a-z0-9])?", fullmatch=True), min_size=1, max_size=4
).map(lambda parts: ".".join(parts)[:253].strip("-."))

TAINTS = st.builds(
    Taint,
    key=st.sampled_from(["gpu.tessera.dev/fault", "gpu.tessera.dev/preflight", "drain"]),
    value=st.sampled_from(["", "xid-79", "pending"]),
    effect=st.sampled_from(TaintEffect),
)
ATTRIBUTES: st.SearchStrategy[Attribute] = st.one_of(
    st.builds(Text, st.text(max_size=16)),
    st.builds(Version, st.sampled_from(["580.95.5", "13.0.0", "1.0.0-rc.1"])),
    st.builds(Number, st.integers(-(2**63), 2**63 - 1)),
    st.builds(Flag, st.booleans()),
)


def amounts(least: int = 0) -> st.SearchStrategy[tuple[tuple[str, int], ...]]:
    named = st.dictionaries(LABELS, AMOUNTS, min_size=least, max_size=3)
    return named.map(lambda d: tuple(d.items()))


DEVICES = st.builds(
    Device,
    name=LABELS,
    attributes=st.dictionaries(LABELS, ATTRIBUTES, max_size=4).map(lambda d: tuple(d.items())),
    capacity=amounts(),
    consumes=st.lists(
        st.builds(Consumption, counter_set=LABELS, counters=amounts(1)), max_size=2
    ).map(tuple),
    taints=st.lists(TAINTS, max_size=3, unique=True).map(tuple),
)
SLICES = st.one_of(
    st.builds(
        Slice,
        name=LABELS,
        devices=st.lists(DEVICES, max_size=3, unique_by=lambda d: d.name).map(tuple),
    ),
    st.builds(
        Slice,
        name=LABELS,
        counter_sets=st.lists(
            st.builds(CounterSet, name=LABELS, counters=amounts(1)), max_size=2
        ).map(tuple),
    ),
)

_FAULT = Taint(key="gpu.tessera.dev/fault", value="xid", effect=TaintEffect.NO_SCHEDULE)
_CONTENTS: tuple[dict[str, Any], ...] = (
    {},
    {"devices": (Device(name="gpu-a", capacity=(("memory", 80 * 2**30),)),)},
    {"devices": (Device(name="gpu-b", capacity=(("memory", 16_000),), taints=(_FAULT,)),)},
    {"counter_sets": (CounterSet(name="set-0", counters=(("memory-slice-0", 1),)),)},
)


@st.composite
def pools(draw: st.DrawFn) -> Pool:
    """One to four slices of few contents, so that two pools often have some in common."""
    contents = draw(st.lists(st.sampled_from(_CONTENTS), min_size=1, max_size=4))
    what = draw(st.sampled_from(["gpus", "gpus", "gpus", "mixed"]))
    slices = tuple(
        Slice(name=f"{NODE}-{DRIVER}-{i:02d}-{what}", **content)
        for i, content in enumerate(contents)
    )
    return Pool(driver=DRIVER, node=NODE, name=POOL, slices=slices)


def numbered_gpu(number: int) -> GpuFacts:
    return GpuFacts(
        uuid=GpuUuid(f"GPU-{number:08x}-0000-4000-8000-000000000000"),
        index=number,
        minor=number,
        pci=PciAddress(domain=number % 3, bus=number, device=0),
        product="NVIDIA H100 80GB HBM3",
        memory=80 * 2**30,
        mig=MigState(capable=True),
    )


PRINTED = st.text(max_size=80)
GPUS = st.builds(
    GpuFacts,
    uuid=UUIDS,
    index=st.integers(0, 15),
    minor=st.integers(0, 15),
    pci=st.builds(
        PciAddress,
        domain=st.integers(0, 0xFFFF),
        bus=st.integers(0, 0xFF),
        device=st.integers(0, 0x1F),
    ),
    product=PRINTED,
    memory=st.integers(0, 2**40),
    mig=st.builds(MigState, capable=st.booleans()),
    brand=st.none() | PRINTED,
    architecture=st.none() | PRINTED,
    compute_capability=st.none() | st.tuples(st.integers(1, 20), st.integers(0, 9)),
    numa_node=st.none() | st.integers(-1, 7),
    pcie_root=st.none() | PRINTED,
    addressing_mode=st.none() | PRINTED,
    nvlink_domain=st.none() | PRINTED,
)
SNAPSHOTS = st.builds(
    NodeSnapshot,
    driver=st.builds(DriverFacts, driver=PRINTED | st.from_regex(r"\d{1,4}(\.\d{1,4}){1,3}")),
    gpus=st.lists(GPUS, max_size=4, unique_by=(lambda g: g.uuid, lambda g: g.pci)).map(tuple),
)
