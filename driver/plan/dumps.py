"""What kubectl printed, as slices and claims: text -> values.

Why it exists: the command must work where nothing but files is at hand. Both kinds may come in one
list, so that one kubectl call is enough. Must not know devices.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from api.resource.claim import ResourceClaim
from api.resource.codec import StoredSlice, decode_stored
from driver.core.errors import ConfigError
from driver.plan.shape import check_slice

_STDIN = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """All slices and claims, of any driver."""

    slices: tuple[StoredSlice, ...]
    claims: tuple[ResourceClaim, ...]


def read_dump(dump: str | None, slices: str | None, claims: str | None, stdin: TextIO) -> Dump:
    """ConfigError names what is missing, or the file and what is wrong in it."""
    if dump is not None:
        if (slices, claims) != (None, None):
            raise ConfigError("--dump has both kinds; leave --slices and --claims out")
        return make_dump(list(_objects(_name(dump), _text(dump, "--dump", stdin))))
    if slices is None or claims is None:
        missing = "--claims" if claims is None else "--slices"
        raise ConfigError(
            f"{missing} is missing: slices without claims would look free, claims without slices"
            " have no place; give both"
        )
    if slices == claims == _STDIN:
        raise ConfigError("--slices and --claims: only one of them can be standard input")
    return make_dump(
        [
            each
            for flag, file in (("--slices", slices), ("--claims", claims))
            for each in _objects(_name(file), _text(file, flag, stdin))
        ]
    )


def _name(file: str) -> str:
    return "standard input" if file == _STDIN else file


def _text(name: str, flag: str, stdin: TextIO) -> str:
    if name == _STDIN:
        return stdin.read()
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{flag}: {name} cannot be read: {error}") from error


def _objects(where: str, text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not JSON ({error}); use kubectl with -o json") from error
    if not isinstance(found, dict) or "kind" not in found:
        raise ConfigError(f"{where}: no Kubernetes object; use kubectl with -o json")
    # A typed list may leave the kind of its items out.
    kind = str(found["kind"]).removesuffix("List")
    items = found.get("items", [found])
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ConfigError(f"{where}: its items are no list of objects; use kubectl with -o json")
    for item in items:
        yield where, {"kind": kind, **item}


def _name_of(obj: Mapping[str, Any]) -> str:
    metadata = obj.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""


def make_dump(objects: Sequence[tuple[str, Mapping[str, Any]]]) -> Dump:
    """`objects`: each with where it is from, for the error that it may cause."""
    slices, claims = [], []
    for where, each in objects:
        try:
            match each["kind"]:
                case "ResourceSlice":
                    check_slice(each)
                    slices.append(decode_stored(each))
                case "ResourceClaim":
                    claims.append(ResourceClaim.model_validate(each))
                case other:
                    raise ConfigError(
                        f"{where}: found a {other}; only ResourceSlices and ResourceClaims are read"
                    )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"{where}: {each['kind']} {_name_of(each)} is not complete: {error}"
            ) from error
    return Dump(slices=tuple(slices), claims=tuple(claims))
