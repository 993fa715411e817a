"""Where an object lives in the API: /api for the core group, /apis for every other."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlencode

from driver.ports.kube import Resource


def collection(resource: Resource, namespace: str = "") -> str:
    """Without a namespace: the objects of all namespaces."""
    root = f"/apis/{resource.group}" if resource.group else "/api"
    scope = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{root}/{resource.version}{scope}/{resource.plural}"


def single(resource: Resource, name: str, namespace: str = "", subresource: str = "") -> str:
    """Refuses an empty name: that would be the collection, and DELETE would empty it."""
    if not name:
        raise ValueError(f"a {resource.kind} without a name cannot be addressed")
    if resource.namespaced != bool(namespace):
        scope = "needs a" if resource.namespaced else "has no"
        raise ValueError(f"{resource.kind} {name} {scope} namespace, got {namespace!r}")
    path = f"{collection(resource, namespace)}/{quote(name, safe='')}"
    return f"{path}/{subresource}" if subresource else path


def query(parameters: Mapping[str, str | int | bool]) -> str:
    """Leaves out what is empty or false: the server reads `watch=false` as it reads no `watch`."""
    given = {key: _text(value) for key, value in parameters.items() if value not in {"", False}}
    return f"?{urlencode(given)}" if given else ""


def _text(value: str | int | bool) -> str:
    return "true" if value is True else str(value)
