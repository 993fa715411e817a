"""What is asked for: shares of each kind of partition, for boards of any size.

Why it exists: published mixes speak of 1g, 2g and whole GPUs; a board has `1g.10gb` or `1g.5gb`. A
role is a profile's compute slices, with `x2` where a smaller profile has as many ("double memory").

Source of `alibaba`: single-GPU tasks of the public trace cluster-trace-gpu-v2023, each rounded up
to the smallest partition that holds it; `alishare`: only those that asked for a part of a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from driver.core.geometry import MigProfile, Offer
from driver.core.packing import WHOLE

_WHOLE: Final = "whole"
_ROLES: Final = ("1g", "1gx2", "2g", "3g", "4g", _WHOLE)


def _of(*weights: float) -> Mapping[str, float]:
    return MappingProxyType({r: w for r, w in zip(_ROLES, weights, strict=True) if w})


MIXES: Final[Mapping[str, Mapping[str, float]]] = MappingProxyType(
    {
        "uniform": _of(1, 1, 1, 1, 1, 1),
        "small": _of(40, 15, 25, 12, 5, 3),
        "mid": _of(10, 15, 25, 25, 20, 5),
        "big": _of(5, 5, 10, 20, 25, 35),
        "bimodal": _of(70, 0, 0, 0, 0, 30),
        "alishare": _of(1, 0, 9.1, 41.9, 2.3, 45.7),
        "alibaba": _of(0.5, 0, 4, 18.4, 1, 76.1),
    }
)


def on_board(mix: Mapping[str, float], offer: Offer) -> dict[str, float]:
    """Weights by kind. Roles that the board lacks are left out; the others keep their ratio."""
    kinds = {_role(p, offer): p.name for p in offer.profiles if not p.is_variant}
    kinds[_WHOLE] = WHOLE
    return {kinds[role]: weight for role, weight in mix.items() if role in kinds}


def _role(profile: MigProfile, offer: Offer) -> str:
    alike = [p.size for p in offer.profiles if p.compute_slices == profile.compute_slices]
    return f"{profile.compute_slices}g{'x2' if profile.size > min(alike) else ''}"
