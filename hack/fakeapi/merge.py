"""JSON merge patch, and enough of server-side apply: ownership of fields, and lists with keys.

Ownership is kept beside the objects, not in metadata.managedFields, which nothing here reads.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

Obj = dict[str, Any]
Path = tuple[str, ...]

_KEYED: Final[dict[str, tuple[str, ...]]] = {
    "conditions": ("type",),
    "ownerReferences": ("uid",),
}
_DEVICE_KEYS: Final = ("driver", "pool", "device", "shareID")
_NEVER_OWNED: Final = frozenset({("apiVersion",), ("kind",), ("metadata", "name")})


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def owned_by(applied: Obj) -> dict[Path, Any]:
    """Every leaf that an applied object sets. An entry of a keyed list is a step of the path."""
    return {path: leaf for path, leaf in _leaves(applied, ()) if path not in _NEVER_OWNED}


def apply(stored: Obj, applied: Obj, *, given_up: set[Path]) -> Obj:
    """`stored` with all of `applied`, and without what its manager owned and left out."""
    result: Obj = _merge(copy.deepcopy(stored), copy.deepcopy(applied), ())
    for path in sorted(given_up, key=lambda p: (_is_key(p), -len(p))):
        _remove(result, path, ())
    return result


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    entries = _entries(value, path)
    if entries is None or not entries:
        yield path, value
        return
    for step, child in entries.items():
        yield from _leaves(child, (*path, step))


def _entries(value: Any, path: Path) -> dict[str, Any] | None:
    """Children by step; None for what is taken or left as a whole."""
    if isinstance(value, dict):
        return value
    keys = _list_keys(path)
    if isinstance(value, list) and keys and all(isinstance(e, dict) for e in value):
        return {_identity(e, keys): e for e in value}
    return None


def _list_keys(path: Path) -> tuple[str, ...] | None:
    if path == ("status", "devices"):
        return _DEVICE_KEYS
    return _KEYED.get(path[-1]) if path else None


def _identity(entry: Obj, keys: tuple[str, ...]) -> str:
    return "[" + ",".join(f"{key}={entry.get(key, '')}" for key in keys) + "]"


def _merge(stored: Any, applied: Any, path: Path) -> Any:
    if isinstance(stored, dict) and isinstance(applied, dict):
        for key, value in applied.items():
            stored[key] = _merge(stored.get(key), value, (*path, key))
        return stored
    keys = _list_keys(path)
    if keys and isinstance(stored, list) and isinstance(applied, list):
        places = {_identity(entry, keys): i for i, entry in enumerate(stored)}
        for entry in applied:
            step = _identity(entry, keys)
            if step in places:
                stored[places[step]] = _merge(stored[places[step]], entry, (*path, step))
            else:
                stored.append(entry)
        return stored
    return applied


def _remove(value: Any, path: Path, at: Path) -> None:
    """Remove a leaf, and the containers that are empty then."""
    step, *rest = path
    if isinstance(value, dict):
        if step not in value:
            return
        if rest:
            _remove(value[step], tuple(rest), (*at, step))
        if not rest or value[step] in ({}, []):
            del value[step]
        return
    keys = _list_keys(at)
    if not isinstance(value, list) or not keys:
        return
    for entry in [e for e in value if _identity(e, keys) == step]:
        if len(rest) > 1 or rest[0] not in keys:
            _remove(entry, tuple(rest), (*at, step))
        elif set(entry) <= set(keys):
            value.remove(entry)


def _is_key(path: Path) -> bool:
    """The keys of a list's entry go last, and take the entry with them if nothing else is left."""
    return len(path) > 1 and path[-1] in (_list_keys(path[:-2]) or ())
