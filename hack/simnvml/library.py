"""The control side of the library as Python sees it: ctypes declarations and nothing else.

Why it exists: one place that must agree with `lib/control.c`; the kit above it has no ctypes types
in its interface. NVML itself is not called from here: that is what the driver under test does.
"""

from __future__ import annotations

import ctypes as c
from functools import cache
from pathlib import Path
from typing import ClassVar, Final

from hack.simnvml.build import library_path

NOBODY: Final = 0xFFFFFFFF
RULE_CRASH: Final = -1
SYMBOL_LEN: Final = 64
U32, U64, TEXT, BYTES = range(4)


class RuleStruct(c.Structure):
    """`Rule` in state.h."""

    _fields_: ClassVar = [
        ("id", c.c_uint32),
        ("symbol", c.c_char * SYMBOL_LEN),
        ("gpu", c.c_int),
        ("ret", c.c_int),
        ("left", c.c_uint32),
        ("delay_ms", c.c_uint32),
        ("after", c.c_uint32),
        ("per_million", c.c_uint32),
        ("hits", c.c_uint32),
        ("seed", c.c_uint64),
    ]


class InstanceStruct(c.Structure):
    """`InstanceRow` in control.h."""

    _fields_: ClassVar = [
        *(
            (name, c.c_uint32)
            for name in (
                *("gpu", "gi", "profile_id", "start", "size", "gi_busy"),
                *("ci", "ci_profile", "ci_start", "ci_size", "ci_busy", "mig_index"),
            )
        ),
        ("uuid", c.c_char * 48),
        ("profile", c.c_char * 96),
    ]


class CallStruct(c.Structure):
    """`CallRow` in control.h."""

    _fields_: ClassVar = [
        ("at_ns", c.c_uint64),
        ("pid", c.c_uint32),
        ("gpu", c.c_int),
        ("ret", c.c_int),
        ("symbol", c.c_char * SYMBOL_LEN),
    ]


class LayoutStruct(c.Structure):
    """`Row` in layout.c."""

    _fields_: ClassVar = [
        ("structure", c.c_char_p),
        ("field", c.c_char_p),
        ("offset", c.c_uint32),
        ("size", c.c_uint32),
    ]


_MACHINE: Final = c.c_void_p
_SIGNATURES: Final[dict[str, tuple[object, list[object]]]] = {
    "sim_create": (_MACHINE, [c.c_char_p]),
    "sim_open": (_MACHINE, [c.c_char_p]),
    "sim_close": (None, [_MACHINE]),
    "sim_field_name": (c.c_char_p, [c.c_int, c.c_uint32]),
    "sim_field_info": (
        c.c_int,
        [c.c_int, c.c_char_p, c.POINTER(c.c_uint32), c.POINTER(c.c_uint32)],
    ),
    "sim_poke": (
        c.c_int,
        [_MACHINE, c.c_int, c.c_char_p, c.c_uint32, c.c_char_p, c.c_uint32],
    ),
    "sim_peek": (c.c_int, [_MACHINE, c.c_int, c.c_char_p, c.c_void_p, c.c_uint32]),
    "sim_hide": (c.c_int, [_MACHINE, c.c_int, c.c_char_p, c.c_uint32]),
    "sim_field_value": (c.c_int, [_MACHINE, c.c_uint32, c.c_uint32, c.c_uint64, c.c_int]),
    "sim_profile": (
        c.c_int,
        [
            *(_MACHINE, c.c_uint32, c.c_uint32, c.POINTER(c.c_uint32), c.c_uint64),
            *(c.c_char_p, c.POINTER(c.c_uint32), c.c_uint32, c.c_uint32),
        ],
    ),
    "sim_event": (
        c.c_int,
        [_MACHINE, c.c_uint32, c.c_uint64, c.c_uint64, c.c_uint32, c.c_uint32],
    ),
    "sim_busy": (c.c_int, [_MACHINE, *[c.c_uint32] * 4]),
    "sim_process": (
        c.c_int,
        [_MACHINE, c.c_uint32, c.c_uint32, c.c_uint64, c.c_uint32, c.c_uint32],
    ),
    "sim_reset": (c.c_int, [_MACHINE, c.c_uint32]),
    "sim_instances": (c.c_uint32, [_MACHINE, c.POINTER(InstanceStruct), c.c_uint32]),
    "sim_rule": (c.c_int, [_MACHINE, c.POINTER(RuleStruct)]),
    "sim_rule_clear": (None, [_MACHINE, c.c_uint32]),
    "sim_rules": (c.c_uint32, [_MACHINE, c.POINTER(RuleStruct), c.c_uint32]),
    "sim_calls": (c.c_uint64, [_MACHINE, c.c_char_p]),
    "sim_call_log": (c.c_uint32, [_MACHINE, c.POINTER(CallStruct), c.c_uint32]),
    "sim_wait_calls": (c.c_int, [_MACHINE, c.c_char_p, c.c_uint64, c.c_uint32]),
    "sim_layout": (c.c_int, [c.c_uint32, c.POINTER(LayoutStruct)]),
}


@cache
def load(path: Path | None = None) -> c.CDLL:
    """The library with its control functions declared; by default the one of `library_path()`.

    It has the SONAME that NVML bindings ask for: from now on `CDLL("libnvidia-ml.so.1")` in this
    process gives this library, whatever the search path says.
    """
    library = c.CDLL(str(path if path is not None else library_path()))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library
