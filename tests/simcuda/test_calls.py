"""What calls do and refuse, with the codes that CUDA documents."""

from __future__ import annotations

import ctypes as c
from array import array

import pytest

from driver.cuda import kernel
from hack.simcuda.testing import RULE_CORRUPT, init

BLOCKS, ROUNDS = 4, 3
SIZE = BLOCKS * kernel.THREADS * kernel.WORD
GIVEN = kernel.words(7).tobytes() * BLOCKS
EXPECTED = kernel.mixed(kernel.words(7), ROUNDS).tobytes() * BLOCKS


def compute(cuda) -> bytes:
    at = cuda.memory(SIZE)
    function = cuda.function(kernel.PTX, kernel.ENTRY.encode())
    assert cuda.lib.cuMemcpyHtoD_v2(at, GIVEN, SIZE) == 0
    assert cuda.launch(function, at, BLOCKS, ROUNDS) == 0
    assert cuda.lib.cuCtxSynchronize() == 0
    found = c.create_string_buffer(SIZE)
    assert cuda.lib.cuMemcpyDtoH_v2(found, at, SIZE) == 0
    return found.raw


def different_bits(a: bytes, b: bytes) -> int:
    return sum((x ^ y).bit_count() for x, y in zip(a, b, strict=True))


def test_the_probe_kernel_computes_what_the_host_computes(cuda, make_machine) -> None:
    make_machine()
    init()
    cuda.context()
    assert compute(cuda) == EXPECTED
    first = array("I", EXPECTED)[0]
    x = 7
    for step in range(ROUNDS):
        x = (x ^ x >> 16) * 0x7FEB352D % 2**32
        x = (x ^ x >> 15) * 0x846CA68B % 2**32
        x = ((x ^ x >> 16) + step) % 2**32
    assert first == x


@pytest.mark.parametrize("symbol", ["cuLaunchKernel", "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2"])
def test_silent_corruption_flips_one_bit_and_no_call_tells(cuda, make_machine, symbol) -> None:
    machine = make_machine()
    init()
    cuda.context()
    with machine.rule(symbol, ret=RULE_CORRUPT, gpu=0):
        found = compute(cuda)
    wrong_words = sum(x != y for x, y in zip(array("I", found), array("I", EXPECTED), strict=True))
    assert wrong_words == 1
    assert symbol == "cuMemcpyHtoD_v2" or different_bits(found, EXPECTED) == 1
    assert compute(cuda) == EXPECTED


def test_calls_out_of_order_are_refused(cuda, make_machine) -> None:
    make_machine()
    lib, out = cuda.lib, c.c_void_p()
    init()
    assert lib.cuInit(1) == 1
    assert lib.cuDeviceGet(c.byref(c.c_int()), 2) == 101
    assert lib.cuMemAlloc_v2(c.byref(c.c_uint64()), 64) == 201
    assert lib.cuCtxSetCurrent(c.c_void_p(64)) == 201
    cuda.context()
    assert lib.cuModuleGetFunction(c.byref(out), c.c_void_p(64), b"tessera_probe") == 400
    assert lib.cuMemFree_v2(c.c_uint64(64)) == 1
    assert lib.cuDevicePrimaryCtxRelease_v2(0) == 0
    assert lib.cuCtxSynchronize() == 201


def test_before_the_start_nothing_works_but_the_version(cuda, make_machine) -> None:
    machine = make_machine()
    version = c.c_int()
    assert cuda.lib.cuDeviceGetCount(c.byref(version)) == 3
    assert cuda.lib.cuDriverGetVersion(c.byref(version)) == 0
    assert version.value == machine.get("cuda")


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        (b".version 6.0", b".version 9.9", 222),
        (b".target sm_50", b".target sm_100", 209),
        (b".target sm_50", b".target future", 218),
        (b".version", b"", 200),
    ],
)
def test_ptx_that_the_driver_cannot_compile(cuda, make_machine, before, after, code) -> None:
    make_machine()
    init()
    cuda.context()
    image = kernel.PTX.replace(before, after)
    assert cuda.lib.cuModuleLoadData(c.byref(c.c_void_p()), image) == code


def test_a_module_has_its_own_entries_only(cuda, make_machine) -> None:
    make_machine()
    init()
    cuda.context()
    module, function = c.c_void_p(), c.c_void_p()
    ptx = kernel.PTX.replace(b".entry tessera_probe(", b".entry my_tessera_probe(")
    assert cuda.lib.cuModuleLoadData(c.byref(module), ptx) == 0
    assert cuda.lib.cuModuleGetFunction(c.byref(function), module, b"tessera_probe") == 500
    assert cuda.lib.cuModuleGetFunction(c.byref(function), module, b"my_tessera_probe") == 0
    assert cuda.launch(function, cuda.memory(1024), 1, 1) == 801  # nobody told us what it computes


def test_memory_is_as_large_as_the_device_and_comes_back(cuda, make_machine) -> None:
    machine = make_machine()
    init()
    cuda.context()
    too_much = int(machine.gpu(0).get("mem_total")) + 1
    assert cuda.lib.cuMemAlloc_v2(c.byref(c.c_uint64()), too_much) == 2
    free, total = c.c_size_t(), c.c_size_t()
    at = cuda.memory(1 << 20)
    assert cuda.lib.cuMemGetInfo_v2(c.byref(free), c.byref(total)) == 0
    before = free.value
    assert cuda.lib.cuMemFree_v2(at) == 0
    cuda.lib.cuMemGetInfo_v2(c.byref(free), c.byref(total))
    assert free.value - before == 1 << 20
    assert cuda.lib.cuMemcpyHtoD_v2(at, b"gone", 4) == 1


def test_a_kernel_beyond_its_memory_spoils_the_context(cuda, make_machine) -> None:
    make_machine()
    init()
    context = cuda.context()
    function = cuda.function(kernel.PTX, kernel.ENTRY.encode())
    assert cuda.launch(function, cuda.memory(SIZE - 4), BLOCKS, ROUNDS) == 0
    assert cuda.lib.cuCtxSynchronize() == 700
    assert cuda.lib.cuMemAlloc_v2(c.byref(c.c_uint64()), 64) == 700
    other = c.c_void_p()
    assert cuda.lib.cuCtxCreate_v2(c.byref(other), 0, 0) == 0
    assert other.value != context.value
    assert compute(cuda) == EXPECTED


@pytest.mark.parametrize(
    ("code", "name"),
    [(0, b"CUDA_SUCCESS"), (2, b"CUDA_ERROR_OUT_OF_MEMORY"), (800, b"CUDA_ERROR_NOT_PERMITTED")],
)
def test_codes_have_their_names(cuda, make_machine, code, name) -> None:
    out = c.c_char_p()
    assert cuda.lib.cuGetErrorName(code, c.byref(out)) == 0
    assert out.value == name
    assert cuda.lib.cuGetErrorName(4711, c.byref(out)) == 1
