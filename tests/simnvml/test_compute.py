"""Compute instances inside a GPU instance."""

from __future__ import annotations

import ctypes

import pynvml as n
import pytest

from tests.simnvml.helpers import code_of, profiles, start

FOUR, SEVEN = 5, 0  # profile ids of the 8-slot class


def compute_profiles(gi):
    found = {}
    for index in range(9):  # an older binding knows fewer
        try:
            info = n.nvmlGpuInstanceGetComputeInstanceProfileInfo(gi, index, 0, 2)
        except n.NVMLError_NotSupported:
            continue
        found[index] = (info.sliceCount, info.instanceCount, info.multiprocessorCount)
    return found


@pytest.mark.parametrize(
    ("profile", "offered"),
    [
        ("1g.10gb", {0: (1, 1, 16)}),
        # The plain 1c of the double-memory 1g owns a slice's SMs, REV1 (7) all of them.
        ("1g.20gb", {0: (1, 1, 16), 7: (1, 1, 26)}),
        ("2g.20gb", {0: (1, 2, 16), 1: (2, 1, 32)}),
        ("3g.40gb", {0: (1, 3, 16), 1: (2, 1, 32), 2: (3, 1, 60)}),
        ("4g.40gb", {0: (1, 4, 16), 1: (2, 2, 32), 3: (4, 1, 64)}),
        (
            "7g.80gb",
            {
                0: (1, 7, 16),
                1: (2, 3, 32),
                2: (3, 2, 48),
                3: (4, 1, 64),
                4: (7, 1, 132),
                8: (7, 1, 132),
            },
        ),
    ],
)
def test_compute_profiles_by_gpu_instance(nvml, make_machine, profile, offered) -> None:
    make_machine()
    gpu = start(mig=True)
    gi = n.nvmlDeviceCreateGpuInstance(gpu, profiles(gpu)[profile].id)
    assert compute_profiles(gi) == offered


def test_an_ampere_board_lists_a_second_seven_slice_profile_and_refuses_it(
    nvml, make_machine
) -> None:
    make_machine(["a100-40"]).gpu(0).set(mig_needs_reset=0)
    gpu = start(mig=True)
    gi = n.nvmlDeviceCreateGpuInstance(gpu, SEVEN)
    assert {4, 8} <= set(compute_profiles(gi))
    assert code_of(n.nvmlGpuInstanceCreateComputeInstance, gi, 8) == n.NVML_ERROR_NOT_SUPPORTED
    assert code_of(n.nvmlGpuInstanceCreateComputeInstance, gi, 4) == 0


def test_compute_instances_share_a_gpu_instance_without_overlap(nvml, make_machine) -> None:
    make_machine()
    gpu = start(mig=True)
    gi = n.nvmlDeviceCreateGpuInstance(gpu, FOUR)
    two, one = n.NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE, n.NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE
    place = n.c_nvmlComputeInstancePlacement_t(2, 2)
    made = n.nvmlGpuInstanceCreateComputeInstanceWithPlacement(gi, two, ctypes.byref(place))
    n.nvmlGpuInstanceCreateComputeInstance(gi, one)
    assert n.nvmlComputeInstanceGetInfo(made).placement.start == 2
    assert n.nvmlGpuInstanceGetComputeInstanceRemainingCapacity(gi, one) == 1
    assert code_of(n.nvmlGpuInstanceCreateComputeInstance, gi, two) == (
        n.NVML_ERROR_INSUFFICIENT_RESOURCES
    )
    name = n.nvmlDeviceGetName(n.nvmlComputeInstanceGetInfo(made).device)
    assert name == "NVIDIA H100 80GB HBM3 MIG 4g.40gb"
