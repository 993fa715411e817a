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

from driver.core.ids import ClaimUID, DeviceName, GpuUuid
from driver.core.ledger import Entry
from driver.core.names import cdi_device, cdi_kind

CDI_VERSION: Final = "0.5.0"
"""Has `hostPath` in device nodes and device names that begin with a digit, as claim UIDs may."""

_DEVICE: Final = "TESSERA_DEVICE_"

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
            "env": [f"{_DEVICE}{_identifier(h.device)}={h.uuid}"],
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


def read_devices(spec: object, uid: ClaimUID) -> dict[DeviceName, str] | None:
    """The UUID of each device in a specification of ours; None for anything else. It is what is
    left of a claim whose entry was lost.
    """
    match spec:
        case {"kind": str(kind), "devices": [*devices]} if kind == cdi_kind() and devices:
            pairs = [_read_device(each, uid) for each in devices]
        case _:
            return None
    found = dict(pair for pair in pairs if pair is not None)
    return found if len(found) == len(pairs) else None


def _read_device(device: object, uid: ClaimUID) -> tuple[DeviceName, str] | None:
    match device:
        case {"name": str(full), "containerEdits": {"env": [*env]}}:
            name = DeviceName(full.removeprefix(prefix := cdi_device(uid, DeviceName(""))))
        case _:
            return None
    mark = f"{_DEVICE}{_identifier(name)}="
    uuids = [str(each).removeprefix(mark) for each in env if str(each).startswith(mark)]
    return (name, uuids[0]) if full.startswith(prefix) and len(uuids) == 1 and uuids[0] else None


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
