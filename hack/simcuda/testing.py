"""For tests that call the simulated CUDA driver in their own process, or start programs that do."""

from __future__ import annotations

import ctypes as c
import os
from functools import cache
from typing import Final

from hack.simcuda.build import library_path

RULE_CORRUPT: Final = -2
"""As `ret` of a rule of `hack.simnvml.kit.Machine`: the call works, and one bit comes out wrong."""
FOR_EVER_MS: Final = 0xFFFFFFFF
"""As `delay_ms` of a rule: the call hangs."""


@cache
def load() -> c.CDLL:
    """The library, once a process: it finds the machine of SIMNVML_STATE at the first cuInit."""
    return c.CDLL(str(library_path()))


def forget() -> None:
    """Makes this process one that never called cuInit: contexts and memory go, the environment is
    read anew.
    """
    load().simcuda_forget()


def init(visible: str | None = None) -> int:
    """What cuInit answers where CUDA_VISIBLE_DEVICES is `visible`; None: unset."""
    forget()
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    if visible is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
    return int(load().cuInit(0))
