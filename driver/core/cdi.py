"""The CDI specification of one claim: what the container runtime adds to a container.

Why it exists: the spec is the whole of what a container gets, so it is built by a pure function
from values that were read at this preparation. Must not know files: the driver root's content comes
in as `DriverFiles`.

Source: Container Device Interface 1.1.0; the lowest version that has the fields used is declared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from driver.core.ids import GpuUuid
from driver.core.ledger import Entry
from driver.core.names import cdi_device, cdi_kind

CDI_VERSION: Final = "0.5.0"
"""Has `hostPath` in device nodes and device names that begin with a digit, as claim UIDs may."""

JsonValue = str | int | list["JsonValue"] | dict[str, "JsonValue"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNode:
    """A character device. `path`: in the container; `host_path`: as the runtime sees it."""

    path: str
    host_path: str
    major: int
    minor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A read-only bind mount of one file."""

    host_path: str
    container_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFiles:
    """What the driver root holds now. `gpus`: the node of each GPU; `control`: those all share;
    `capabilities`: the two nodes that open a partition, by its UUID.
    """

    gpus: Mapping[GpuUuid, DeviceNode]
    control: tuple[DeviceNode, ...]
    mounts: tuple[Mount, ...]
    capabilities: Mapping[str, tuple[DeviceNode, ...]] = field(default_factory=dict)


def build_spec(entry: Entry, files: DriverFiles) -> dict[str, JsonValue]:
    """One device a holding; nodes and libraries that all of them need stand once, for the spec."""
    devices: dict[str, JsonValue] = {
        cdi_device(entry.uid, h.device): {
            "deviceNodes": _nodes([files.gpus[h.gpu], *files.capabilities.get(h.uuid, ())]),
            # Two claims in one container overwrite TESSERA_DEVICES; this name is the device's own.
            "env": [f"TESSERA_DEVICE_{_identifier(h.device)}={h.uuid}"],
        }
        for h in entry.holdings
    }
    uuids = ",".join(dict.fromkeys(h.uuid for h in entry.holdings))
    common: dict[str, JsonValue] = {
        "env": [
            f"TESSERA_DEVICES={uuids}",
            # Keeps NVIDIA's runtime hook, where installed, from adding every GPU of the node.
            "NVIDIA_VISIBLE_DEVICES=void",
        ],
        "deviceNodes": _nodes(files.control),
        "mounts": [
            {
                "hostPath": m.host_path,
                "containerPath": m.container_path,
                "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"],
            }
            for m in files.mounts
        ],
    }
    return {
        "cdiVersion": CDI_VERSION,
        "kind": cdi_kind(),
        "devices": [{"name": n, "containerEdits": edits} for n, edits in devices.items()],
        "containerEdits": {key: value for key, value in common.items() if value},
    }


def _nodes(nodes: Iterable[DeviceNode]) -> list[JsonValue]:
    return [
        {
            "path": n.path,
            "hostPath": n.host_path,
            "type": "c",
            "major": n.major,
            "minor": n.minor,
            "permissions": "rw",
        }
        for n in nodes
    ]


def _identifier(device: str) -> str:
    return device.removeprefix("gpu-").replace("-", "_").upper()
