"""Quantities in canonical form: `1024Mi` is stored as `1Gi`, so text must not be compared."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

_FORM: Final = re.compile(r"([+-]?\d+(?:\.\d*)?|[+-]?\.\d+)(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|)\Z")
_BINARY: Final = {
    name: Fraction(1024**i) for i, name in enumerate(("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))
}
_DECIMAL: Final = {
    name: Fraction(1000) ** i
    for i, name in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), -3)
}


def value(text: str) -> Fraction:
    found = _FORM.match(text)
    if found is None:
        raise ValueError(f"quantities must match {_FORM.pattern}, got {text!r}")
    number, suffix = found[1], found[2]
    return Fraction(number) * (_BINARY[suffix] if suffix.endswith("i") else _DECIMAL[suffix])


def canonical(text: str) -> str:
    """The largest suffix of the same family that leaves a whole number."""
    amount = value(text)
    family = _BINARY if text.endswith("i") else _DECIMAL
    for suffix, factor in reversed(list(family.items())):
        scaled = amount / factor
        if scaled.denominator == 1 and (scaled or not suffix):
            return f"{scaled.numerator}{suffix}"
    return text
