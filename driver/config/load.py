"""Defaults < file < environment < flags, into one checked value.

Why not a library: precedence is twenty lines, and an error must name the source that holds the
wrong value, which none of them does. All problems are told at once.

Must not know single settings; it works for any pydantic model of flat fields.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from driver.config.document import read_mapping
from driver.core.errors import ConfigError

PREFIX: Final = "TESSERA_"
FILE_VARIABLE: Final = f"{PREFIX}CONFIG"
_SHOWN: Final = 200
"""Characters of a wrong value."""

_SERVICE_LINK: Final = re.compile(
    r"TESSERA_(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_\w+)?)?)",
    re.ASCII,
)
"""What the kubelet adds to every pod for a Service called `tessera...` in its namespace."""

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """`label`: how messages name the place of a key. `known`: the keys that it may hold."""

    values: Mapping[str, object]
    name: str
    kind: str

    def label(self, key: str) -> str:
        match self.kind:
            case "file":
                return f"{self.name}: {key}"
            case "environment":
                return variable(key)
            case _:
                return flag(key)


def variable(key: str) -> str:
    return PREFIX + key.upper()


def flag(key: str) -> str:
    return "--" + key.replace("_", "-")


def load(
    model: type[M],
    *,
    flags: Mapping[str, str],
    environ: Mapping[str, str],
    file: Path | None = None,
) -> M:
    """`flags`: by key, only those that were given. ConfigError lists every problem found."""
    path = file or _file_of(environ)
    layers = [
        _Layer(values=read_mapping(path) if path else {}, name=str(path), kind="file"),
        _Layer(values=_variables(environ), name="", kind="environment"),
        _Layer(values=flags, name="", kind="flags"),
    ]
    known = tuple(model.model_fields)
    problems = [p for layer in layers for p in _unknown(layer, known)]
    merged: dict[str, object] = {}
    origin: dict[str, _Layer] = {}
    for layer in layers:
        for key in known:
            if key in layer.values:
                merged[key], origin[key] = layer.values[key], layer
    try:
        settings = model.model_validate(merged)
    except ValidationError as error:
        problems += _wrong(error, origin, model)
    if problems:
        raise ConfigError("; ".join(dict.fromkeys(problems)))
    return settings


def _file_of(environ: Mapping[str, str]) -> Path | None:
    name = environ.get(FILE_VARIABLE, "")
    return Path(name) if name else None


def _variables(environ: Mapping[str, str]) -> dict[str, object]:
    return {
        name.removeprefix(PREFIX).lower(): value
        for name, value in environ.items()
        if name.startswith(PREFIX) and name != FILE_VARIABLE and not _SERVICE_LINK.fullmatch(name)
    }


def _unknown(layer: _Layer, known: tuple[str, ...]) -> Iterable[str]:
    for key in layer.values:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {layer.label(near[0])}?" if near else f"known: {', '.join(known)}"
            yield f"{layer.label(key)} is not a setting; {hint}"


def _wrong(
    error: ValidationError, origin: Mapping[str, _Layer], model: type[BaseModel]
) -> Iterable[str]:
    for found in error.errors(include_url=False):
        if found["type"] == "default_factory_not_called":
            continue  # follows from another field's error, which is listed
        key, *below = found["loc"]
        key = str(key)
        if found["type"] == "missing" and not below:
            yield (
                f"{key.replace('_', ' ')} missing: set {flag(key)} or {variable(key)}"
                f" ({_after_semicolon(model.model_fields[key].description)})"
            )
            continue
        reason = found["msg"].removeprefix("Value error, ")
        where = origin[key].label(key) if key in origin else f"default of {key}"
        where += "".join(f"[{at}]" if isinstance(at, int) else f".{at}" for at in below)
        match found["type"]:
            case "missing":
                yield f"{where} is missing"
            case "extra_forbidden":
                yield f"{where} is not a setting"
            case _:
                yield f"{where}: {_short(found['input'])} is wrong: {reason}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _after_semicolon(description: str | None) -> str:
    """The advice in a field's help text stands after its last semicolon."""
    return (description or "").rpartition("; ")[2]
