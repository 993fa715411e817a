"""Which devices a process has: CUDA_VISIBLE_DEVICES against GPUs and partitions."""

from __future__ import annotations

import os

import pytest

from hack.simcuda.testing import init
from tests.simnvml.helpers import partition, start

NO_DEVICE = 100


def hexes(*uuids: str) -> list[str]:
    return [uuid.partition("-")[2].replace("-", "") for uuid in uuids]


@pytest.mark.parametrize(
    ("visible", "slots"),
    [
        (None, [0, 1, 2, 3]),
        ("{0}", [0]),
        ("{2},{0}", [2, 0]),
        (" {1}", [1]),
        ("3,1", [3, 1]),
        ("{1},GPU-none,{0}", [1]),
        ("0,0", [0]),
        ("2,-1,0", [2]),
        ("{prefix}", [1]),
        ("GPU-", []),
        ("", []),
        ("NoDevFiles", []),
    ],
)
def test_the_list_names_devices_until_an_entry_names_none(
    cuda, make_machine, visible, slots
) -> None:
    machine = make_machine(["h100-80"] * 4)
    uuids = [gpu.uuid for gpu in machine.gpus]
    given = None if visible is None else visible.format(*uuids, prefix=uuids[1][:13])
    assert init(given) == (0 if slots else NO_DEVICE)
    if slots:
        assert cuda.uuids() == hexes(*(uuids[slot] for slot in slots))


def test_a_process_has_one_partition_by_its_uuid_and_nothing_beside_it(
    cuda, nvml, make_machine
) -> None:
    machine = make_machine("h100x2")
    gpu = start(0, mig=True)
    _, _, first = partition(gpu, "1g.10gb")
    _, _, second = partition(gpu, "3g.40gb")
    whole = machine.gpu(1).uuid
    assert init(second) == 0
    assert cuda.uuids() == hexes(second)
    assert cuda.name() == "NVIDIA H100 80GB HBM3 MIG 3g.40gb"
    for visible in (f"{second},{first}", f"{second},{whole}"):
        init(visible)
        assert cuda.uuids() == hexes(second)
    init(f"{whole},{second}")
    assert cuda.uuids() == hexes(whole)
    init(None)
    assert cuda.uuids() == hexes(whole)  # without a list, the GPU that is whole


def test_a_gpu_in_mig_mode_means_its_first_instance_and_without_one_no_device(
    cuda, nvml, make_machine
) -> None:
    machine = make_machine("h100x2")
    gpu = start(0, mig=True)
    uuid = machine.gpu(0).uuid
    assert init(uuid) == NO_DEVICE
    _, _, made = partition(gpu)
    assert init(uuid) == 0
    assert cuda.uuids() == hexes(made)


def test_what_the_device_cgroup_hides_is_no_device(cuda, make_machine, monkeypatch) -> None:
    first, second = make_machine("h100x2").gpus
    monkeypatch.setenv("SIMNVML_VISIBLE", second.uuid)
    assert init(first.uuid) == NO_DEVICE
    assert init(second.uuid) == 0


def test_the_variable_is_read_at_the_first_start_only(cuda, make_machine) -> None:
    first, second = make_machine("h100x2").gpus
    init(first.uuid)
    os.environ["CUDA_VISIBLE_DEVICES"] = second.uuid
    assert cuda.lib.cuInit(0) == 0
    assert cuda.uuids() == hexes(first.uuid)
