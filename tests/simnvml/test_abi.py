"""Is the library the library that nvidia-ml-py talks to? Layout and names, not behaviour."""

from __future__ import annotations

import ast
import ctypes
import inspect
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pynvml
import pytest

from hack.simnvml import library
from hack.simnvml.assemble import SYMBOLS_SINCE_610
from hack.simnvml.build import build

ADAPTER = Path(__file__).resolve().parents[2] / "driver" / "nvml"

# Real NVML symbols that nvidia-ml-py itself never asks for by this name.
OLDER_NAMES = {
    "nvmlInit",
    "nvmlInit_v2",
    "nvmlEventSetWait",
    "nvmlComputeInstanceGetInfo",
    "nvmlDeviceGetAttributes",
}
# The oldest supported nvidia-ml-py, 13.580, does not know these yet.
NEWER_NAMES = set(SYMBOLS_SINCE_610)


def layout() -> Iterator[tuple[str, str | None, int, int]]:
    row = library.LayoutStruct()
    index = 0
    while library.load().sim_layout(index, ctypes.byref(row)) == 0:
        yield row.structure.decode(), row.field and row.field.decode(), row.offset, row.size
        index += 1


def expected(structure: str) -> list[tuple[str, str | None, int, int]]:
    type_ = getattr(pynvml, structure)
    fields = [
        (structure, name, getattr(type_, name).offset, getattr(type_, name).size)
        for name, _ in type_._fields_
    ]
    return [(structure, None, 0, ctypes.sizeof(type_)), *fields]


def wrong_in_binding() -> set[str]:
    """13.580 declares the cluster UUID of the first fabric structure with 80 bytes, NVML has 16."""
    first = pynvml.c_nvmlGpuFabricInfo_t
    return {first.__name__} if first.clusterUuid.size == 80 else set()


def test_every_structure_has_the_size_and_the_offsets_of_the_binding() -> None:
    known = {name for name, *_ in layout() if hasattr(pynvml, name)} - wrong_in_binding()
    rows = [row for row in layout() if row[0] in known]
    structures = list(dict.fromkeys(row[0] for row in rows))
    assert len(structures) >= 29
    assert rows == [row for name in structures for row in expected(name)]


@pytest.mark.parametrize(
    ("word", "structure", "version"),
    [
        ("nvmlMemory_v2", "c_nvmlMemory_v2_t", 2),
        ("nvmlGpuInstanceProfileInfo_v2", "c_nvmlGpuInstanceProfileInfo_v2_t", 2),
        ("nvmlComputeInstanceProfileInfo_v2", "c_nvmlComputeInstanceProfileInfo_v2_t", 2),
        ("nvmlGpuFabricInfo_v3", "c_nvmlGpuFabricInfo_v3_t", 3),
        ("nvmlEccSramErrorStatus_v1", "c_nvmlEccSramErrorStatus_v1_t", 1),
    ],
)
def test_a_version_word_is_the_size_with_the_version_above(word, structure, version) -> None:
    size = ctypes.sizeof(getattr(pynvml, structure))
    assert getattr(pynvml, word) == size | version << 24


@cache
def exported() -> set[str]:
    out = subprocess.run(
        ["nm", "-D", "--defined-only", str(build())], capture_output=True, text=True, check=True
    )
    return {line.split()[-1] for line in out.stdout.splitlines()}


def c_symbols(function: str, seen: frozenset[str] = frozenset()) -> set[str]:
    """The C functions behind a Python one; wrappers call one another, by version suffix mostly."""
    source = inspect.getsource(getattr(pynvml, function))
    found = set(re.findall(r'_nvmlGetFunctionPointer\("(\w+)"\)', source))
    inner = set(re.findall(r"\b(nvml[A-Z]\w+)\(", source)) - seen - {function}
    for name in inner:
        if inspect.isfunction(getattr(pynvml, name, None)):
            found |= c_symbols(name, seen | inner | {function})
    return found


def test_nothing_but_nvml_and_the_control_side_is_exported() -> None:
    known = set(re.findall(r'_nvmlGetFunctionPointer\("(\w+)"\)', inspect.getsource(pynvml)))
    nvml = {name for name in exported() if name.startswith("nvml")}
    assert len(nvml) > 110
    assert nvml - known <= OLDER_NAMES | NEWER_NAMES
    assert nvml >= NEWER_NAMES
    assert all(name.startswith(("nvml", "sim_")) for name in exported())


def adapter_names() -> set[str]:
    names: set[str] = set()
    for path in ADAPTER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Attribute(attr=name) | ast.Name(id=name) | ast.Constant(value=str(name)):
                    names.update((re.fullmatch(r"nvml[A-Z]\w+", name) and [name]) or [])
    return {name for name in names if inspect.isfunction(getattr(pynvml, name, None))}


def test_every_function_that_the_adapter_calls_is_simulated() -> None:
    names = adapter_names()
    assert {"nvmlInit", "nvmlShutdown"} <= names
    missing = {name: gap for name in names if (gap := c_symbols(name) - exported())}
    assert missing == {}


def test_an_unversioned_call_reaches_the_symbol_of_its_version() -> None:
    assert c_symbols("nvmlInit") == {"nvmlInitWithFlags"}
    assert c_symbols("nvmlDeviceGetPciInfo") == {"nvmlDeviceGetPciInfo_v3"}
