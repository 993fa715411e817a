"""Records what NVML answers on this machine: return codes and types of every getter, no values.

Why it exists: the simulator is honest only as far as it was compared with a real library. A
transcript holds no serial number, UUID or load, so it can be kept and shown.

Usage: python -m tests.gpu.record [--driver-root /] [--library FILE] [--out FILE]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pynvml

from driver.core.errors import LibraryMissing
from driver.nvml.library import find_library
from tests.gpu.getters import Getter, device_getters, system_getters
from tests.gpu.readonly import ChangesAreRefused, read_only

Answer = dict[str, int | str]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.record", description=__doc__)
    parser.add_argument("--driver-root", type=Path, default=Path("/"))
    parser.add_argument("--library", type=Path, help="default: searched in the driver root")
    parser.add_argument("--out", type=Path, help="default: standard output")
    chosen = parser.parse_args(arguments)
    try:
        transcript = record(chosen.library or find_library(chosen.driver_root))
    except (LibraryMissing, OSError, pynvml.NVMLError) as error:
        print(f"NVML does not answer here: {error}", file=sys.stderr)
        return 1
    text = json.dumps(transcript, indent=1) + "\n"
    if chosen.out is None:
        print(text, end="")
    else:
        chosen.out.write_text(text)
    return 0


def record(library: Path) -> dict[str, Any]:
    """The transcript of one library, in a process that uses no other."""
    pynvml.nvmlLib = ctypes.CDLL(str(library))
    with read_only():
        pynvml.nvmlInit()
        try:
            return {
                "binding": version("nvidia-ml-py"),
                "driver": pynvml.nvmlSystemGetDriverVersion(),
                "nvml": pynvml.nvmlSystemGetNVMLVersion(),
                "system": _answers(system_getters()),
                "gpus": [_gpu(index) for index in range(pynvml.nvmlDeviceGetCount())],
            }
        finally:
            pynvml.nvmlShutdown()


def _gpu(index: int) -> dict[str, Any]:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    return {
        "product": pynvml.nvmlDeviceGetName(handle),
        "calls": _answers(device_getters(handle)),
    }


def _answers(getters: Iterable[Getter]) -> dict[str, Answer]:
    return {name: _answer(call) for name, call in getters}


def _answer(call: Callable[[], Any]) -> Answer:
    try:
        return {"code": 0, "type": kind(call())}
    except pynvml.NVMLError as error:
        return {"code": int(error.value)}
    except pynvml.NVMLLibraryMismatchError:  # pynvml's word for a symbol that is not there
        return {"code": pynvml.NVML_ERROR_FUNCTION_NOT_FOUND}
    except ChangesAreRefused:
        raise
    except Exception as error:  # noqa: BLE001 - a defect of the binding is an answer too
        return {"raised": type(error).__name__}


def kind(value: object) -> str:
    """The type as far as a caller can tell; of a list, those of its elements."""
    if isinstance(value, (list, tuple)):
        return f"list[{', '.join(sorted({kind(each) for each in value}))}]"
    return type(value).__name__


if __name__ == "__main__":
    sys.exit(main())
