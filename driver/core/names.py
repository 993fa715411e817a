"""How things of ours are called. Pure functions of what never moves: UUIDs, node and driver name.

An index or a minor number moves over reboots; a claim that names one could silently mean another
GPU afterwards. So a device is called by the first eight hex digits of its GPU's UUID.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from api.resource.limits import MAX_SUBDOMAIN, is_label
from driver.core.ids import CdiId, ClaimUID, DeviceName, GpuUuid, PoolName, SliceName

CDI_VENDOR: Final = "tessera.dev"
CDI_CLASS: Final = "claim"
POOL_SUFFIX: Final = "tessera"
TRIED: Final = 99
"""The position of slices that are only tried, never stored."""
_SHORT: Final = 8
_LONGEST: Final = DeviceName(f"gpu-{'0' * 32}")
_LAST: Final = 99
_PARTITION: Final = re.compile(r"(gpu-[0-9a-f]+)-mig-([0-9]+g[0-9]+gb(?:-[a-z]+)?)-(n?)([0-9]+)")


def gpu_device_names(uuids: Iterable[GpuUuid]) -> dict[GpuUuid, DeviceName]:
    """`gpu-<first 8 hex of the UUID>` each; the whole UUID where two would be called the same."""
    all_uuids = sorted(set(uuids))
    short = Counter(_hex(u)[:_SHORT] for u in all_uuids)
    return {
        u: DeviceName(f"gpu-{_hex(u) if short[_hex(u)[:_SHORT]] > 1 else _hex(u)[:_SHORT]}")
        for u in all_uuids
    }


def is_of_gpu(device: str, gpu: GpuUuid) -> bool:
    """Whether a device, whole or part, is called after this GPU."""
    part = device.partition("-mig-")[0].removeprefix("gpu-")
    return len(part) >= _SHORT and _hex(gpu).startswith(part)


def _hex(uuid: GpuUuid) -> str:
    return uuid.removeprefix("GPU-").replace("-", "").lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionName:
    """What the name of a partition says. `label` is the profile's; see `profile_label`."""

    gpu: DeviceName
    label: str
    start: int


def profile_label(profile: str) -> str:
    """A MIG profile as part of a DNS label: `1g.10gb` -> `1g10gb`, `+me.all` -> `-meall`.

    A leading minus means "without", so `1g.24gb-me` is `1g24gb-nome`: it must not be called as
    `1g.24gb+me` is.
    """
    return profile.replace("-", "-no").replace("+", "-").replace(".", "")


def partition_name(gpu: DeviceName, profile: str, start: int) -> DeviceName:
    """`<GPU>-mig-<label>-<start>`. The start is part of the name: another one is another device."""
    return DeviceName(f"{gpu}-mig-{profile_label(profile)}-{start}")


def read_partition_name(name: str) -> PartitionName | None:
    """The reverse of `partition_name`; None for what is not called like a partition."""
    found = _PARTITION.fullmatch(name)
    if found is None or found[3]:
        return None
    return PartitionName(gpu=DeviceName(found[1]), label=found[2], start=int(found[4]))


def unfit(profiles: Iterable[str]) -> dict[str, str]:
    """The profiles of one board after which no device can be called, with the reason. Devices are
    told by name alone: to claims, in the ledger, and after a restart.
    """
    all_profiles = list(profiles)
    labels = Counter(map(profile_label, all_profiles))
    found: dict[str, str] = {}
    for profile in all_profiles:
        label = profile_label(profile)
        device = partition_name(_LONGEST, profile, _LAST)
        read = read_partition_name(device)
        if read is None or read.label != label or not is_label(device):
            found[profile] = "no device can be called after it"
        elif labels[label] > 1:
            found[profile] = "its devices would be called as those of another profile"
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class LateName:
    """What the name of a partition says whose start is chosen at preparation."""

    gpu: DeviceName
    label: str
    ordinal: int


def late_name(gpu: DeviceName, profile: str, ordinal: int) -> DeviceName:
    """`<GPU>-mig-<label>-n<ordinal>`: one of several that are alike; it says no place."""
    return DeviceName(f"{gpu}-mig-{profile_label(profile)}-n{ordinal}")


def read_late_name(name: str) -> LateName | None:
    """The reverse of `late_name`; None for what is not called like that."""
    found = _PARTITION.fullmatch(name)
    if found is None or not found[3]:
        return None
    return LateName(gpu=DeviceName(found[1]), label=found[2], ordinal=int(found[4]))


def pool_name(node: str) -> PoolName:
    """`<node>/tessera`. Never the node alone: a scheduler cache collides on equal pool names."""
    tail = f"/{POOL_SUFFIX}"
    return PoolName(_fit(node, MAX_SUBDOMAIN - len(tail)) + tail)


def slice_name(node: str, driver: str, position: int, what: str) -> SliceName:
    """`<node>-<driver>-<NN>-<what>`: sorts by position, so the scheduler visits it in our order.

    Too long a node name is cut and marked with a hash of the whole name; the tail is kept.
    """
    tail = f"-{driver}-{position:02d}-{what}"
    return SliceName(_fit(node, MAX_SUBDOMAIN - len(tail)) + tail)


def _fit(node: str, room: int) -> str:
    if len(node) <= room:
        return node
    mark = hashlib.sha256(node.encode()).hexdigest()[:_SHORT]
    return f"{node[: room - len(mark) - 1].rstrip('-.')}-{mark}"


def cdi_kind() -> str:
    return f"{CDI_VENDOR}/{CDI_CLASS}"


def cdi_device(claim: ClaimUID, device: DeviceName) -> str:
    """The name inside the spec. It holds the claim's UID: runtimes cache specs by name."""
    return f"{claim}-{device}"


def cdi_id(claim: ClaimUID, device: DeviceName) -> CdiId:
    return CdiId(f"{cdi_kind()}={cdi_device(claim, device)}")


def cdi_file(claim: ClaimUID) -> str:
    """The file's name in the CDI folder, one per claim."""
    return f"{CDI_VENDOR}-{CDI_CLASS}_{claim}.json"
