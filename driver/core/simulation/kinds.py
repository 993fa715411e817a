"""What users call the kinds of devices: a profile by its name, and a full GPU `gpu`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from driver.core.errors import ConfigError
from driver.core.packing import WHOLE

GPU: Final = "gpu"


def kind_named(where: str, name: str, kinds: Collection[str]) -> str:
    """ConfigError, with `where` it was said, for a kind that is not among `kinds`."""
    kind = WHOLE if name == GPU else name
    if kind in kinds and name:
        return kind
    allowed = ", ".join(name_of(k) for k in kinds)
    raise ConfigError(f"{where}: there is no profile {name!r}; allowed: {allowed}")


def name_of(kind: str) -> str:
    return GPU if kind == WHOLE else kind
