"""Names of things: what they are for known hardware, and that they stay legal at the edges."""

import pytest

from api.resource.limits import is_subdomain
from driver.core.ids import ClaimUID, DeviceName, GpuUuid
from driver.core.names import (
    cdi_device,
    cdi_file,
    cdi_id,
    cdi_kind,
    gpu_device_names,
    pool_name,
    slice_name,
)

A = GpuUuid("GPU-4CF8DB2D-06C0-7D70-1A51-E59B25B2C16C")
B = GpuUuid("GPU-4cf8db2d-ffff-7d70-1a51-e59b25b2c16c")
C = GpuUuid("GPU-00000001-06c0-7d70-1a51-e59b25b2c16c")


def test_a_gpu_is_called_by_the_first_eight_digits_of_its_uuid():
    assert gpu_device_names([A, C]) == {A: "gpu-4cf8db2d", C: "gpu-00000001"}


def test_gpus_that_would_be_called_the_same_get_their_whole_uuid_and_others_do_not():
    assert gpu_device_names([A, B, C]) == {
        A: "gpu-4cf8db2d06c07d701a51e59b25b2c16c",
        B: "gpu-4cf8db2dffff7d701a51e59b25b2c16c",
        C: "gpu-00000001",
    }


def test_the_pool_and_its_slices_carry_the_name_of_the_node():
    assert pool_name("node-1") == "node-1/tessera"
    assert slice_name("node-1", "gpu.tessera.dev", 3, "gpus") == "node-1-gpu.tessera.dev-03-gpus"


def test_slices_sort_by_position_even_beyond_nine():
    names = [slice_name("n", "d", position, "gpus") for position in range(100)]
    assert names == sorted(names)


@pytest.mark.parametrize("length", [200, 246, 253])
def test_a_long_node_name_is_cut_and_marked_and_stays_legal(length):
    node, twin = "n" * (length - 1) + "a", "n" * (length - 1) + "b"
    for name in (pool_name, lambda n: slice_name(n, "d" * 63, 0, "gpus")):
        assert len(name(node)) <= 253
        assert name(node) != name(twin)
        assert name(node) == name(node)
    assert all(map(is_subdomain, pool_name(node).split("/")))
    assert slice_name(node, "d", 0, "gpus").endswith("-d-00-gpus")


@pytest.mark.parametrize("separator", [".", "-", "--"])
def test_a_cut_never_ends_in_a_dot_or_a_dash(separator):
    nodes = [("n" * cut + separator).ljust(253, "m") for cut in range(200, 250)]
    assert all(map(is_subdomain, nodes))
    names = [slice_name(node, "d", 0, "gpus") for node in nodes]
    assert [name for name in names if not is_subdomain(name) or f"{separator}-" in name] == []


def test_cdi_names_hold_the_uid_of_the_claim():
    uid, device = ClaimUID("0b5e"), DeviceName("gpu-4cf8db2d")
    assert cdi_kind() == "tessera.dev/claim"
    assert cdi_device(uid, device) == "0b5e-gpu-4cf8db2d"
    assert cdi_id(uid, device) == "tessera.dev/claim=0b5e-gpu-4cf8db2d"
    assert cdi_file(uid) == "tessera.dev-claim_0b5e.json"
