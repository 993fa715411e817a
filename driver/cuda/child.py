"""The probe itself: a process that computes on one device, says how that went, and ends.

    python -m driver.cuda.child '{"library": "/usr/lib/libcuda.so.1", "seed": 7}'

Why a process: a call into a sick GPU may never come back, and only a process can be abandoned. The
device is the only one that CUDA_VISIBLE_DEVICES leaves; a MIG device can be chosen in no other way.

The answer is one line of JSON, `result` being `passed`, `wrong-result`, `error` (with `call`,
`code`, `name`) or `library`. Must not know what the answer means. Standard library only, and little
of it: a node with eight GPUs starts many of these.
"""

from __future__ import annotations

import ctypes as c
import json
import os
import resource
import signal
import sys
import time

from driver.cuda import kernel
from driver.cuda.api import Cuda, CudaError, LibraryUnusable

BLOCKS = 1024
"""More than any GPU has multiprocessors, so that each of them computes; 1 MiB."""
ROUNDS = 32

Answer = dict[str, object]


def probe(library: str, *, seed: int, blocks: int = BLOCKS, rounds: int = ROUNDS) -> Answer:
    """Runs it. Only what CUDA says becomes an answer; anything else is a bug, and raises.

    `seed`: a new one each time, so that the last probe's result in memory is not this one's.
    """
    started = time.monotonic()
    answer: Answer
    try:
        answer = _compute(Cuda(library), seed, blocks, rounds)
    except LibraryUnusable as error:
        answer = {"result": "library", "detail": str(error)}
    except CudaError as error:
        answer = {"result": "error", "call": error.call, "code": error.code, "name": error.name}
    return answer | {"seconds": round(time.monotonic() - started, 6)}


def _compute(cuda: Cuda, seed: int, blocks: int, rounds: int) -> Answer:
    cuda.call("cuInit", 0)
    device = c.c_int()
    cuda.call("cuDeviceGet", c.byref(device), 0)
    name = c.create_string_buffer(256)
    cuda.call("cuDeviceGetName", name, len(name), device)
    context = c.c_void_p()
    cuda.call("cuDevicePrimaryCtxRetain", c.byref(context), device)
    cuda.call("cuCtxSetCurrent", context)
    given = kernel.words(seed)
    found = _run_kernel(cuda, given.tobytes() * blocks, blocks, rounds)
    cuda.call("cuDevicePrimaryCtxRelease_v2", device)
    wrong = kernel.difference(found, kernel.mixed(given, rounds).tobytes() * blocks)
    answer: Answer = {"device": name.value.decode(errors="replace")}
    if wrong:
        return answer | {"result": "wrong-result", "detail": f"{wrong} (seed {seed})"}
    return answer | {"result": "passed"}


def _run_kernel(cuda: Cuda, given: bytes, blocks: int, rounds: int) -> bytes:
    """The array after the kernel. What an error leaves behind goes with the process."""
    module, function, memory = c.c_void_p(), c.c_void_p(), c.c_uint64()
    found = c.create_string_buffer(len(given))
    cuda.call("cuModuleLoadData", c.byref(module), kernel.PTX)
    cuda.call("cuModuleGetFunction", c.byref(function), module, kernel.ENTRY.encode())
    cuda.call("cuMemAlloc_v2", c.byref(memory), len(given))
    cuda.call("cuMemcpyHtoD_v2", memory, given, len(given))
    count = c.c_uint32(rounds)
    parameters = (c.c_void_p * 2)(c.addressof(memory), c.addressof(count))
    grid, block = (blocks, 1, 1), (kernel.THREADS, 1, 1)
    cuda.call("cuLaunchKernel", function, *grid, *block, 0, None, parameters, None)
    cuda.call("cuCtxSynchronize")
    cuda.call("cuMemcpyDtoH_v2", found, memory, len(given))
    cuda.call("cuMemFree_v2", memory)
    cuda.call("cuModuleUnload", module)
    return found.raw


def main(arguments: list[str]) -> None:
    """Answers on what was standard output; what libraries print there goes to standard error."""
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    request = json.loads(arguments[0])
    _be_expendable(request.pop("limit", 0))
    os.write(answers, json.dumps(probe(**request)).encode() + b"\n")
    # Not through the library's exit handlers: the answer is given, and they may hang as well.
    os._exit(0)


def _be_expendable(limit: int) -> None:
    """Ends after `limit` seconds, should nobody be left to end it; leaves no core file; goes first
    when memory is short.
    """
    signal.alarm(limit)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:  # noqa: PTH123 (heavy)
        score.write("1000")


if __name__ == "__main__":
    main(sys.argv[1:])
