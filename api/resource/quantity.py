"""Kubernetes quantities, as far as devices need them: whole numbers, read in any spelling.

The server stores `85899345920` as `80Gi`; comparing text would find a difference for ever.
"""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil
from typing import Final

_BINARY: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL: Final[dict[str, int | Fraction]] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "E": 10**18,
}
_FORM: Final = re.compile(
    r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))(?:(?P<exponent>[eE][+-]?\d+)|(?P<suffix>[A-Za-z]*))"
)


def parse_quantity(text: str | int) -> int:
    """The value, rounded away from zero as the API does. ValueError if it is no quantity."""
    found = _FORM.fullmatch(str(text))
    if not found:
        raise ValueError(f"{text!r} is not a quantity such as 16, 500m or 40Gi")
    suffix = found["suffix"] or ""
    factor = _BINARY.get(suffix) or _DECIMAL.get(suffix)
    if factor is None:
        raise ValueError(f"{text!r} ends in {suffix!r}, which is no quantity suffix")
    value = Fraction(found["number"] + (found["exponent"] or "")) * factor
    return ceil(value) if value > 0 else -ceil(-value)


def format_quantity(value: int) -> str:
    """The canonical form: the largest binary suffix that divides it."""
    for suffix, factor in reversed(_BINARY.items()):
        if value and value % factor == 0:
            return f"{value // factor}{suffix}"
    return str(value)
