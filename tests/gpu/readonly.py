"""Nothing here may change a GPU: a guard between pynvml and the library.

Why by name: NVML's own permissions do not help where tests run as root. A symbol is asked for by
name before its first call, so what is refused was never called.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

import pynvml

_READING: Final = re.compile(
    r"nvml(?:Init\w*|Shutdown|ErrorString"
    r"|(?:System|Device|GpuInstance|ComputeInstance)(?:Get|Is)[A-Z]\w*)"
)


class ChangesAreRefused(Exception):
    """Somebody asked for a function that could change the GPU or the driver."""


def is_reading(symbol: str) -> bool:
    return _READING.fullmatch(symbol) is not None


@contextmanager
def read_only() -> Iterator[None]:
    """Inside, pynvml gives out no function but those that read."""
    real = pynvml._nvmlGetFunctionPointer

    def guarded(symbol: str) -> Any:
        if not is_reading(symbol):
            raise ChangesAreRefused(f"{symbol} is not a call that only reads; it was not made")
        return real(symbol)

    with patch.object(pynvml, "_nvmlGetFunctionPointer", guarded):
        yield
