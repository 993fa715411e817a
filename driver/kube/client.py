"""Verbs of the Kubernetes API on plain dicts, for any group, core included.

Built-in groups and custom ones are reached by the same few requests, so one path of code serves
v1, v1beta2 and v1beta1 of resource.k8s.io.

Must not know: what the objects mean, or when to ask again (`retry`, `reflector`).
"""

from __future__ import annotations

import re
from threading import Event
from typing import Final

from driver.core.errors import KubeError, KubeGone, KubeNotFound, KubeUnavailable
from driver.kube import paths
from driver.kube.access import Access
from driver.kube.stream import HttpWatchStream
from driver.kube.throttle import TokenBucket
from driver.kube.transport import APPLY_PATCH, JSON, MERGE_PATCH, Timeouts, Transport
from driver.ports.kube import JsonObject, Listing, Resource, ServerVersion

PAGE: Final = 500
_GIT_VERSION: Final = re.compile(r"v(\d+)\.(\d+)\.")


class Client:
    """Implements `driver.ports.kube.KubeApi`. Reads are free, writes pass the `throttle`."""

    def __init__(
        self,
        access: Access,
        *,
        user_agent: str,
        timeouts: Timeouts | None = None,
        throttle: TokenBucket | None = None,
        page: int = PAGE,
    ) -> None:
        self._transport = Transport(access, user_agent=user_agent)
        self._timeouts = timeouts or Timeouts()
        self._throttle = throttle or TokenBucket()
        self._page = page
        self._closed = Event()

    def close(self) -> None:
        """Writers that wait for the throttle give up."""
        self._closed.set()
        self._transport.close()

    def get(self, resource: Resource, name: str, *, namespace: str = "") -> JsonObject:
        return self._read(paths.single(resource, name, namespace), f"get {resource.plural} {name}")

    def list(
        self, resource: Resource, *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> Listing:
        what = f"list {resource.plural}"
        path = paths.collection(resource, namespace)
        selectors: dict[str, str | int | bool] = {"labelSelector": labels, "fieldSelector": fields}
        try:
            return self._pages(resource, path, what, {**selectors, "limit": self._page})
        except KubeGone:
            # The pages expired while we read them: whole and at once cannot expire.
            return self._pages(resource, path, what, selectors)

    def create(self, resource: Resource, obj: JsonObject, *, dry_run: bool = False) -> JsonObject:
        path = paths.collection(resource, obj["metadata"].get("namespace", ""))
        query = paths.query({"dryRun": "All" if dry_run else ""})
        return self._write("POST", path + query, resource, obj, "create")

    def replace(self, resource: Resource, obj: JsonObject) -> JsonObject:
        return self._write("PUT", _path_of(resource, obj), resource, obj, "replace")

    def patch(
        self, resource: Resource, name: str, patch: JsonObject, *, namespace: str = ""
    ) -> JsonObject:
        path = paths.single(resource, name, namespace)
        what = f"patch {resource.plural} {name}"
        return self._send("PATCH", path, what, patch, MERGE_PATCH)

    def apply(
        self, resource: Resource, obj: JsonObject, *, manager: str, force: bool = True
    ) -> JsonObject:
        query = paths.query({"fieldManager": manager, "force": force})
        path = _path_of(resource, obj) + query
        return self._write("PATCH", path, resource, obj, "apply", APPLY_PATCH)

    def patch_status(
        self, resource: Resource, name: str, patch: JsonObject, *, namespace: str = ""
    ) -> JsonObject:
        path = paths.single(resource, name, namespace, "status")
        what = f"patch status of {resource.plural} {name}"
        return self._send("PATCH", path, what, patch, MERGE_PATCH)

    def apply_status(
        self, resource: Resource, obj: JsonObject, *, manager: str, force: bool = True
    ) -> JsonObject:
        query = paths.query({"fieldManager": manager, "force": force})
        path = _path_of(resource, obj, "status") + query
        return self._write("PATCH", path, resource, obj, "apply status of", APPLY_PATCH)

    def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        version: str = "",
    ) -> None:
        wanted = {"uid": uid, "resourceVersion": version}
        preconditions = {key: value for key, value in wanted.items() if value}
        options: JsonObject = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if preconditions:
            options["preconditions"] = preconditions
        path = paths.single(resource, name, namespace)
        self._send("DELETE", path, f"delete {resource.plural} {name}", options, JSON)

    def watch(
        self,
        resource: Resource,
        *,
        since: str,
        lasting: float,
        silence: float,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
    ) -> HttpWatchStream:
        what = f"watch {resource.plural}"
        query = paths.query(
            {
                "watch": True,
                "allowWatchBookmarks": True,
                "resourceVersion": since,
                "timeoutSeconds": max(1, round(lasting)),
                "labelSelector": labels,
                "fieldSelector": fields,
            }
        )
        path = paths.collection(resource, namespace) + query
        response = self._transport.open(path, what=what, timeouts=self._timeouts, silence=silence)
        return HttpWatchStream(response, what=what)

    def server_version(self) -> ServerVersion:
        answer = self._read("/version", "get the server's version")
        found = _GIT_VERSION.match(str(answer.get("gitVersion", "")))
        if found is None:
            raise KubeError(
                f"gitVersion is {answer.get('gitVersion')!r}; a form like v1.37.2 is needed",
                what="get the server's version",
            )
        return ServerVersion(major=int(found[1]), minor=int(found[2]))

    def served_versions(self, group: str) -> tuple[str, ...]:
        what = f"discover {group or 'the core group'}"
        if not group:
            return tuple(self._read("/api", what)["versions"])
        try:
            answer = self._read(f"/apis/{group}", what)
        except KubeNotFound:
            return ()
        return tuple(entry["version"] for entry in answer["versions"])

    def _pages(
        self,
        resource: Resource,
        path: str,
        what: str,
        parameters: dict[str, str | int | bool],
    ) -> Listing:
        items: list[JsonObject] = []
        token = ""
        while True:
            page = self._read(path + paths.query({**parameters, "continue": token}), what)
            items += (_typed(resource, item) for item in page.get("items") or ())
            token = page["metadata"].get("continue", "")
            if not token:
                return Listing(items=tuple(items), version=page["metadata"]["resourceVersion"])

    def _read(self, path: str, what: str) -> JsonObject:
        return self._transport.call("GET", path, what=what, timeouts=self._timeouts)

    def _write(
        self,
        method: str,
        path: str,
        resource: Resource,
        obj: JsonObject,
        verb: str,
        content_type: str = JSON,
    ) -> JsonObject:
        metadata = obj["metadata"]
        what = f"{verb} {resource.plural} {metadata.get('name') or metadata.get('generateName')}"
        return self._send(method, path, what, _typed(resource, obj), content_type)

    def _send(
        self, method: str, path: str, what: str, body: JsonObject, content_type: str
    ) -> JsonObject:
        pause = self._throttle.reserve()
        if self._closed.wait(pause) if pause else self._closed.is_set():
            raise KubeUnavailable("the client is closed", what=what)
        return self._transport.call(
            method,
            path,
            what=what,
            timeouts=self._timeouts,
            body=body,
            content_type=content_type,
        )


def _typed(resource: Resource, obj: JsonObject) -> JsonObject:
    """With apiVersion and kind: the server omits them in lists and demands them in writes."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, **obj}


def _path_of(resource: Resource, obj: JsonObject, subresource: str = "") -> str:
    metadata = obj["metadata"]
    return paths.single(resource, metadata["name"], metadata.get("namespace", ""), subresource)
