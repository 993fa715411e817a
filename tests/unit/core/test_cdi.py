"""What a container gets, to the byte, and that a runtime would take it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from driver.core.cdi import DeviceNode, DriverFiles, Mount, build_spec, read_devices
from driver.core.ids import ClaimUID, DeviceName
from driver.core.ledger import Entry, Holding
from driver.core.names import cdi_id
from tests.unit.core.given import POOL, uuid

SCHEMA = json.loads((Path(__file__).parents[2] / "data" / "cdi-schema.json").read_text())


def node(name, minor):
    return DeviceNode(path=f"/dev/{name}", host_path=f"/drv/dev/{name}", major=195, minor=minor)


LIBRARY = Mount(host_path="/drv/lib/libcuda.so.1", container_path="/usr/lib/libcuda.so.1")
FILES = DriverFiles(
    gpus={uuid(1): node("nvidia1", 1), uuid(2): node("nvidia2", 2)},
    control=(node("nvidiactl", 255),),
    mounts=(LIBRARY,),
)


def holding(number, device=None, request="gpu", **changes):
    name = DeviceName(device or f"gpu-{number:08x}")
    base = Holding(
        request=request,
        pool=POOL,
        device=name,
        gpu=uuid(number),
        cdi_id=cdi_id(ClaimUID("0b5e"), name),
    )
    return replace(base, **changes)


def entry(*holdings):
    return Entry(
        uid=ClaimUID("0b5e"), namespace="ns", name="a", boot_id="boot-1", holdings=holdings
    )


def spec_of(*holdings: Holding, files: DriverFiles = FILES) -> Any:
    return build_spec(entry(*holdings), files)


def env(edits):
    return dict(line.split("=", 1) for line in edits["env"])


def test_a_claim_of_one_gpu_is_written_so():
    assert spec_of(holding(1)) == {
        "cdiVersion": "0.5.0",
        "kind": "tessera.dev/claim",
        "devices": [
            {
                "name": "0b5e-gpu-00000001",
                "containerEdits": {
                    "deviceNodes": [
                        {
                            "path": "/dev/nvidia1",
                            "hostPath": "/drv/dev/nvidia1",
                            "type": "c",
                            "major": 195,
                            "minor": 1,
                            "permissions": "rw",
                        }
                    ],
                    "env": [f"TESSERA_DEVICE_00000001={uuid(1)}"],
                },
            }
        ],
        "containerEdits": {
            "env": [f"TESSERA_DEVICES={uuid(1)}", "NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [
                {
                    "path": "/dev/nvidiactl",
                    "hostPath": "/drv/dev/nvidiactl",
                    "type": "c",
                    "major": 195,
                    "minor": 255,
                    "permissions": "rw",
                }
            ],
            "mounts": [
                {
                    "hostPath": "/drv/lib/libcuda.so.1",
                    "containerPath": "/usr/lib/libcuda.so.1",
                    "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"],
                }
            ],
        },
    }


@pytest.mark.parametrize(
    "holdings",
    [
        (holding(1),),
        (holding(1), holding(2)),
        (holding(1, "gpu-00000001-mig-1g10gb-0"), holding(1, "gpu-00000001-mig-1g10gb-1")),
        (holding(1, admin_access=True, share_id="s"),),
    ],
    ids=["one", "two", "two parts of one", "admin"],
)
@pytest.mark.parametrize("files", [FILES, replace(FILES, control=(), mounts=())])
def test_a_runtime_takes_the_spec_and_finds_every_device_that_the_kubelet_names(holdings, files):
    spec = spec_of(*holdings, files=files)
    jsonschema.validate(spec, SCHEMA)
    names = [device["name"] for device in spec["devices"]]
    assert [f"{spec['kind']}={name}" for name in names] == [h.cdi_id for h in holdings]


def test_two_requests_for_one_device_are_one_device_of_the_spec():
    spec = spec_of(holding(1, share_id="a"), holding(1, request="b", share_id="b"))
    assert [d["name"] for d in spec["devices"]] == ["0b5e-gpu-00000001"]
    assert env(spec["containerEdits"])["TESSERA_DEVICES"] == uuid(1)


def test_two_parts_of_one_gpu_have_variables_of_their_own_and_name_the_gpu_once():
    parts = [holding(1, f"gpu-00000001-mig-1g10gb-{start}") for start in (0, 1)]
    spec = spec_of(*parts)
    assert env(spec["containerEdits"])["TESSERA_DEVICES"] == uuid(1)
    variables = [env(d["containerEdits"]) for d in spec["devices"]]
    assert variables == [
        {"TESSERA_DEVICE_00000001_MIG_1G10GB_0": uuid(1)},
        {"TESSERA_DEVICE_00000001_MIG_1G10GB_1": uuid(1)},
    ]


def test_the_variables_keep_the_order_of_the_claim():
    spec = spec_of(holding(2), holding(1))
    assert env(spec["containerEdits"])["TESSERA_DEVICES"] == f"{uuid(2)},{uuid(1)}"


def test_the_same_entry_gives_the_same_bytes():
    once, again = (json.dumps(spec_of(holding(1), holding(2))) for _ in "ab")
    assert once == again


def test_the_devices_of_a_spec_are_read_back_with_their_uuids():
    spec = spec_of(holding(1), holding(2, "gpu-00000002-mig-1g10gb-nome-n3"))
    assert read_devices(json.loads(json.dumps(spec)), ClaimUID("0b5e")) == {
        "gpu-00000001": uuid(1),
        "gpu-00000002-mig-1g10gb-nome-n3": uuid(2),
    }


@pytest.mark.parametrize(
    "change",
    [
        lambda _: None,
        lambda _: [],
        lambda spec: spec | {"kind": "nvidia.com/gpu"},
        lambda spec: spec | {"devices": []},
        lambda spec: spec | {"devices": {}},
        lambda spec: spec | {"devices": [*spec["devices"], 1]},
        lambda spec: spec | {"devices": [{"name": "0b5e-gpu-00000001"}]},
        lambda spec: spec | {"devices": [spec["devices"][0] | {"name": "gpu-00000001"}]},
        lambda spec: spec | {"devices": [spec["devices"][0] | {"name": "0b5e-gpu-00000002"}]},
        lambda spec: (
            spec
            | {"devices": [{"name": "0b5e-g", "containerEdits": {"env": ["TESSERA_DEVICE_G="]}}]}
        ),
    ],
    ids=[
        "nothing",
        "a list",
        "another kind",
        "no device",
        "devices that are no list",
        "a device that is none",
        "a device without edits",
        "a name without the claim",
        "another device's UUID",
        "an empty UUID",
    ],
)
def test_what_is_no_spec_of_this_claim_gives_no_devices(change):
    assert read_devices(change(dict(spec_of(holding(1)))), ClaimUID("0b5e")) is None
