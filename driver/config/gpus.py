"""The rules of the setting `gpus`: which GPUs are used how.

Why apart: it is the one setting with a structure. In the file it is a list of mappings, in a
variable or a flag the same list as JSON. Must not know the hardware; `core.modes` applies rules.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from driver.core.ids import GpuUuid
from driver.core.modes import Mode, Rule
from driver.core.snapshot import PciAddress

_PCI: Final = re.compile(
    r"(?:(?P<domain>[0-9a-f]{4,8}):)?(?P<bus>[0-9a-f]{2}):(?P<device>[0-9a-f]{2})\.(?P<function>[0-7])",
    re.ASCII | re.IGNORECASE,
)


def pci_address(text: str) -> PciAddress:
    """`0000:3b:00.0`, as nvidia-smi writes it `00000000:3B:00.0`, or without the domain."""
    match = _PCI.fullmatch(text)
    if match is None:
        raise ValueError("allowed: a PCI address like 0000:3b:00.0")
    parts = {key: int(value or "0", 16) for key, value in match.groupdict().items()}
    return PciAddress(**parts)


def _same_address(text: str) -> str:
    return str(pci_address(text))


def _with_words(text: str) -> str:
    if not re.search(r"[a-z0-9]", text.lower()):
        raise ValueError("allowed: one or more words of the product's name, like H100 or A100 80GB")
    return text


class Match(BaseModel):
    """All that is given must fit; at least one thing is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    uuid: str | None = Field(None, pattern=r"^GPU-[0-9a-f-]{8,}$")
    pci: Annotated[str, AfterValidator(_same_address)] | None = None
    product: Annotated[str, AfterValidator(_with_words)] | None = None
    index: int | None = Field(None, ge=0, strict=True)

    @model_validator(mode="after")
    def _not_empty(self) -> Match:
        if not self.model_dump():
            raise ValueError("allowed: at least one of uuid, pci, product, index")
        return self

    @model_serializer(mode="wrap")
    def _given(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = serialize(self)
        return {key: value for key, value in fields.items() if value is not None}


class GpuRule(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    match: Match
    mode: Mode

    def rule(self) -> Rule:
        return Rule(
            mode=self.mode,
            uuid=None if self.match.uuid is None else GpuUuid(self.match.uuid),
            pci=None if self.match.pci is None else pci_address(self.match.pci),
            product=self.match.product,
            index=self.match.index,
        )


_ALLOWED: Final = (
    "allowed: a list of rules, in a variable or flag a JSON list like"
    ' [{"match": {"product": "A100"}, "mode": "full"}]'
)


def read_list(value: object) -> object:
    """A text is JSON; an empty one is no rule. The file has the list itself."""
    read = _from_json(value) if isinstance(value, str) else value
    if not isinstance(read, list | tuple):
        raise ValueError(_ALLOWED)  # noqa: TRY004 - the error that pydantic takes
    return read


def _from_json(text: str) -> object:
    if not text.strip():
        return ()
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise ValueError(f"{_ALLOWED}; {error.msg} at character {error.pos + 1}") from error
    except RecursionError as error:
        raise ValueError(f"{_ALLOWED}; this one is nested too deeply") from error


def _unique(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key {key!r} is there twice")
        found[key] = value
    return found
