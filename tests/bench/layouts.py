"""What two drivers publish for the same node of eight H100: ours, and a likeness of NVIDIA's.

Why it exists: the scheduler's cost per pod depends on the slices alone, so the comparison needs no
plugin. Ours come from the product's code, on the way that they take in the plugin. NVIDIA's are
written down here from what its driver publishes with dynamic MIG: a slice for each GPU, devices by
name, every attribute of the GPU repeated on each partition, all profiles, a counter for each kind
of engine. Must not know the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from api.resource.codec import NodeOwner, encode_slice
from api.resource.types import (
    Attribute,
    Consumption,
    CounterSet,
    Device,
    Number,
    Pool,
    Slice,
    Text,
    Version,
)
from driver.core.geometry import MigProfile
from driver.core.ids import GpuUuid
from driver.core.inventory import build_inventory
from driver.core.names import profile_label
from driver.core.occupancy import Live, Partition
from driver.core.pools import build_pool
from driver.core.snapshot import DriverFacts, GpuFacts, MigState, NodeSnapshot, PciAddress
from hack.simnvml.presets import EIGHT_ROOTS, identities
from tests.data.mig_boards import H100

GPUS: Final = 8
SMALLEST: Final = H100.profile("1g.10gb")
VERSION: Final = "v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """`slices`: of a node whose first `used` GPUs hold seven 1g each. `held`: their devices, by
    name, in the pool called `pool(node)`.
    """

    driver: str
    slices: Callable[[NodeOwner, int], list[dict[str, Any]]]
    held: Callable[[str, int], list[str]]
    pool: Callable[[str], str]


def snapshot(node: str) -> NodeSnapshot:
    """Eight H100 as NVML shows them, with the identities that the simulator would give them."""
    return NodeSnapshot(
        driver=DriverFacts(driver="580.95.05", cuda=(13, 0)),
        gpus=tuple(
            GpuFacts(
                uuid=GpuUuid(who.uuid),
                index=index,
                minor=index,
                pci=PciAddress(domain=0, bus=seat.bus, device=0),
                product="NVIDIA H100 80GB HBM3",
                memory=81559 * 2**20,
                mig=MigState(capable=True, switchable=True, geometry=H100),
                brand="Nvidia",
                architecture="Hopper",
                compute_capability=(9, 0),
                serial=who.serial,
                numa_node=seat.numa,
                pcie_root=f"pci0000:{seat.root:02x}",
                addressing_mode="None",
            )
            for index, (who, seat) in enumerate(
                zip(identities(node, GPUS), EIGHT_ROOTS, strict=True)
            )
        ),
    )


def our_pool(node: str, used: int = 0) -> Pool:
    """As the plugin publishes it when it knows what is in use."""
    inventory = build_inventory(snapshot(node))
    live = Live(
        partitions=frozenset(
            Partition(gpu=board.uuid, profile=SMALLEST.name, start=start)
            for board in inventory.boards[:used]
            for start in SMALLEST.starts
        )
    )
    return build_pool(inventory, driver="gpu.tessera.dev", node=node, live=live)


def our_held(node: str, used: int) -> list[str]:
    inventory = build_inventory(snapshot(node))
    gpus = {b.uuid for b in inventory.boards[:used]}
    return [
        name
        for name, device in inventory.devices.items()
        if isinstance(device.ref, Partition)
        and device.ref.gpu in gpus
        and device.ref.profile == SMALLEST.name
    ]


def nvidia_pool(node: str, used: int = 0) -> Pool:
    """The order never depends on what is in use."""
    del used
    facts = snapshot(node)
    content = [
        Slice(name="", counter_sets=tuple(_counter_set(g) for g in facts.gpus)),
        *(Slice(name="", devices=tuple(_nvidia_devices(facts, gpu))) for gpu in facts.gpus),
    ]
    return Pool(
        driver="gpu.nvidia.com",
        node=node,
        name=node,
        slices=tuple(
            Slice(
                name=f"{position:05x}-gpu.nvidia.com-{node}",
                devices=each.devices,
                counter_sets=each.counter_sets,
            )
            for position, each in enumerate(content)
        ),
    )


def nvidia_held(node: str, used: int) -> list[str]:
    del node
    return [
        _partition(minor, SMALLEST, start) for minor in range(used) for start in SMALLEST.starts
    ]


def _encoded(pool: Pool, owner: NodeOwner) -> list[dict[str, Any]]:
    return [
        encode_slice(s, pool=pool, generation=1, owner=owner, version=VERSION) for s in pool.slices
    ]


OURS: Final = Layout(
    driver="gpu.tessera.dev",
    slices=lambda owner, used: _encoded(our_pool(owner.name, used), owner),
    held=our_held,
    pool=lambda node: our_pool(node).name,
)
NVIDIA: Final = Layout(
    driver="gpu.nvidia.com",
    slices=lambda owner, used: _encoded(nvidia_pool(owner.name, used), owner),
    held=nvidia_held,
    pool=lambda node: node,
)


def _nvidia_devices(node: NodeSnapshot, gpu: GpuFacts) -> Iterator[Device]:
    """By name; the whole GPU comes first, as its name is the beginning of the others'."""
    whole = H100.profile("7g.80gb")
    shared = _shared(node.driver, gpu)
    consumes = _consumption(gpu, whole, range(H100.slots))
    found = [
        Device(
            name=f"gpu-{gpu.minor}",
            attributes=(*shared, ("type", Text("gpu")), ("uuid", Text(gpu.uuid))),
            capacity=_capacity(whole),
            consumes=consumes,
        )
    ]
    for profile in H100.profiles:
        own = (
            ("type", Text("mig")),
            ("profile", Text(profile.name)),
            ("parentUUID", Text(gpu.uuid)),
        )
        found += [
            Device(
                name=_partition(gpu.minor, profile, place.start),
                attributes=(*shared, *own),
                capacity=_capacity(profile),
                consumes=_consumption(gpu, profile, range(place.start, place.start + place.size)),
            )
            for place in profile.placements
        ]
    yield from sorted(found, key=lambda d: d.name)


def _partition(minor: int, profile: MigProfile, start: int) -> str:
    return f"gpu-{minor}-mig-{profile_label(profile.name)}-{profile.id}-{start}"


def _shared(driver: DriverFacts, gpu: GpuFacts) -> tuple[tuple[str, Attribute], ...]:
    return (
        ("productName", Text(gpu.product)),
        ("brand", Text(gpu.brand or "")),
        ("architecture", Text(gpu.architecture or "")),
        ("addressingMode", Text(gpu.addressing_mode or "")),
        ("driverVersion", Version("580.95.5")),
        ("cudaDriverVersion", Version("{}.{}.0".format(*driver.cuda or (0, 0)))),
        ("cudaComputeCapability", Version("{}.{}.0".format(*gpu.compute_capability or (0, 0)))),
        ("resource.kubernetes.io/pciBusID", Text(str(gpu.pci))),
        ("resource.kubernetes.io/pcieRoot", Text(gpu.pcie_root or "")),
        ("resource.kubernetes.io/numaNode", Number(gpu.numa_node or 0)),
    )


def _engines(profile: MigProfile) -> dict[str, int]:
    return {
        "multiprocessors": profile.multiprocessors,
        "copyEngines": profile.copy_engines,
        "decoders": profile.decoders,
        "encoders": profile.encoders,
        "jpegEngines": profile.jpeg,
        "ofaEngines": profile.ofa,
    }


def _capacity(profile: MigProfile) -> tuple[tuple[str, int], ...]:
    return (*_engines(profile).items(), ("memory", profile.memory_mib * 2**20))


def _amounts(profile: MigProfile, slots: range) -> tuple[tuple[str, int], ...]:
    """Counters in kebab case, and one for each memory slice."""
    engines = {
        "".join(f"-{c.lower()}" if c.isupper() else c for c in name): amount
        for name, amount in _capacity(profile)
    }
    return (*engines.items(), *((f"memory-slice-{slot}", 1) for slot in slots))


def _counter_set(gpu: GpuFacts) -> CounterSet:
    amounts = _amounts(H100.profile("7g.80gb"), range(H100.slots))
    return CounterSet(name=f"gpu-{gpu.minor}-counter-set", counters=amounts)


def _consumption(gpu: GpuFacts, profile: MigProfile, slots: range) -> tuple[Consumption, ...]:
    return (
        Consumption(counter_set=f"gpu-{gpu.minor}-counter-set", counters=_amounts(profile, slots)),
    )
