"""Label and field selectors, equality only; anything else is refused as the server refuses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hack.fakeapi.kinds import Kind
from hack.fakeapi.refusal import bad_request

Obj = dict[str, Any]
Test = Callable[[Obj], bool]


def selector(kind: Kind, labels: str, fields: str, namespace: str) -> Test:
    tests = [*_labels(labels), *_fields(kind, fields)]
    if namespace:
        tests.append(lambda obj: obj["metadata"].get("namespace") == namespace)
    return lambda obj: all(test(obj) for test in tests)


def _labels(text: str) -> list[Test]:
    return [_label(term.strip()) for term in text.split(",") if term.strip()]


def _label(term: str) -> Test:
    if "(" in term or " " in term:
        raise bad_request(f"unable to parse requirement: {term!r} (this server knows = and !=)")

    def labels(obj: Obj) -> Obj:
        return obj["metadata"].get("labels") or {}

    if "=" not in term:
        key = term.removeprefix("!")
        return lambda obj: (key in labels(obj)) != term.startswith("!")
    key, value, equal = _split(term)
    return lambda obj: (labels(obj).get(key) == value) == equal


def _fields(kind: Kind, text: str) -> list[Test]:
    return [_field(kind, term.strip()) for term in text.split(",") if term.strip()]


def _field(kind: Kind, term: str) -> Test:
    key, value, equal = _split(term)
    if key not in {"metadata.name", "metadata.namespace", *kind.fields}:
        raise bad_request(f'field label not supported: "{key}" for {kind.plural}')
    return lambda obj: (_at(obj, key) == value) == equal


def _split(term: str) -> tuple[str, str, bool]:
    key, sign, value = term.partition("=")
    if not sign:
        raise bad_request(f"invalid selector: {term!r}")
    return key.removesuffix("!"), value.removeprefix("="), not key.endswith("!")


def _at(obj: Obj, path: str) -> str:
    value: Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return "" if value is None else str(value)
