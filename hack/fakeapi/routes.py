"""From a method and a URL to what is asked: a verb on a resource, or a page of discovery."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from hack.fakeapi.kinds import KINDS, Kind, find
from hack.fakeapi.refusal import Refusal, not_found

Obj = dict[str, Any]
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    verb: str
    kind: Kind
    version: str
    namespace: str
    name: str
    subresource: str
    query: Mapping[str, str]

    @property
    def resource(self) -> str:
        return f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural


def route(method: str, url: str, served: Mapping[str, tuple[str, ...]]) -> Route:
    split = urlsplit(url)
    query = dict(parse_qsl(split.query, keep_blank_values=True))
    parts = [unquote(part) for part in split.path.strip("/").split("/")]
    group, version, rest = _named(parts)
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource, *more = [*rest, "", "", ""]
    kind = find(group, plural)
    if kind is None or version not in served.get(group, ()) or version not in kind.versions:
        raise Refusal(404, "NotFound", "the server could not find the requested resource")
    if any(more) or subresource not in ({"", "status"} if kind.status else {""}):
        raise not_found(kind.plural, split.path)
    return Route(
        verb=_verb(method, name, query),
        kind=kind,
        version=version,
        namespace=namespace,
        name=name,
        subresource=subresource,
        query=query,
    )


def discovery(url: str, served: Mapping[str, tuple[str, ...]], git_version: str) -> Obj | None:
    """None where the URL asks for something else."""
    path = urlsplit(url).path.rstrip("/")
    groups = {group: versions for group, versions in served.items() if group and versions}
    major, minor, *_ = git_version.removeprefix("v").split(".")
    pages: dict[str, Obj] = {
        "/version": {"major": major, "minor": minor, "gitVersion": git_version},
        "/api": {"kind": "APIVersions", "versions": list(served.get("", ()))},
        "/apis": {"kind": "APIGroupList", "groups": [_group(g, v) for g, v in groups.items()]},
    }
    for group, versions in groups.items():
        pages[f"/apis/{group}"] = _group(group, versions)
    for group, versions in served.items():
        root = f"/apis/{group}" if group else "/api"
        pages |= {f"{root}/{version}": _resources(group, version) for version in versions}
    return pages.get(path)


def _named(parts: list[str]) -> tuple[str, str, list[str]]:
    match parts:
        case ["api", version, *rest] if rest:
            return "", version, rest
        case ["apis", group, version, *rest] if rest:
            return group, version, rest
        case _:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")


def _verb(method: str, name: str, query: Mapping[str, str]) -> str:
    if method == "GET":
        watching = query.get("watch") in {"true", "1"}
        return "watch" if watching else "get" if name else "list"
    if method == "DELETE":
        return "delete" if name else "deletecollection"
    if (method == "POST") == bool(name) or method not in _VERBS:
        raise Refusal(405, "MethodNotAllowed", f"the server does not allow {method} here")
    return _VERBS[method]


def _group(group: str, versions: tuple[str, ...]) -> Obj:
    entries = [{"groupVersion": f"{group}/{v}", "version": v} for v in versions]
    return {"kind": "APIGroup", "apiVersion": "v1", "name": group, "versions": entries}


def _resources(group: str, version: str) -> Obj:
    kinds = [k for k in KINDS if k.group == group and version in k.versions]
    return {
        "kind": "APIResourceList",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": [
            {"name": k.plural, "kind": k.kind, "namespaced": k.namespaced, "verbs": ["*"]}
            for k in kinds
        ],
    }
