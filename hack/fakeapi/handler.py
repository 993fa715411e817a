"""One connection: requests in, answers out, a watch as a stream of chunks."""

from __future__ import annotations

import json
import time
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from hack.fakeapi import conversion
from hack.fakeapi.faults import (
    Answer,
    Cut,
    EndAtOnce,
    ErrorEvent,
    Fault,
    Garbage,
    Hang,
    LostAnswer,
    Silence,
)
from hack.fakeapi.refusal import Refusal, bad_request
from hack.fakeapi.requests import Request
from hack.fakeapi.routes import Route, discovery, route
from hack.fakeapi.watcher import Watcher

if TYPE_CHECKING:
    from hack.fakeapi.server import ApiServer

Obj = dict[str, Any]
_MERGE: Final = "application/merge-patch+json"
_APPLY: Final = "application/apply-patch+yaml"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def __init__(self, *args: Any, api: ApiServer) -> None:
        self.api = api
        self.asked = ("unknown", "")
        super().__init__(*args)

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_PATCH(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """The log of requests is `ApiServer.requests`."""

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length)
        self.asked = ("unknown", "")
        try:
            self._dispatch(raw)
        except Refusal as refusal:
            self._answer(refusal.status, refusal.body(), retry_after=refusal.retry_after)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _dispatch(self, raw: bytes) -> None:
        settings = self.api.cluster.settings
        self._authenticate()
        self.asked = ("discover", "")
        if urlsplit(self.path).path in {"/healthz", "/readyz", "/livez"}:
            return self._answer(200, {"status": "ok"})
        page = discovery(self.path, settings.served, settings.git_version)
        wanted = None
        if page is None:
            wanted = route(self.command, self.path, settings.served)
            self.asked = (wanted.verb, wanted.resource)
        fault = self.api.faults.take(*self.asked)
        if fault is not None and not isinstance(fault, LostAnswer):
            return self._go_wrong(fault)
        if wanted is not None and wanted.verb == "watch":
            return self._watch(wanted)
        answer = page if wanted is None else self._do(wanted, _parsed(raw))
        if isinstance(fault, LostAnswer):
            return self._vanish()
        return self._answer(201 if self.asked[0] == "create" else 200, answer or {})

    def _authenticate(self) -> None:
        if self.api.tokens is None:
            return
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or token not in self.api.tokens:
            raise Refusal(401, "Unauthorized", "Unauthorized")

    def _do(self, r: Route, body: Obj) -> Obj:
        cluster, query = self.api.cluster, r.query
        dry_run = query.get("dryRun") == "All"
        match r.verb:
            case "get":
                return cluster.get(r.kind, r.name, r.namespace, r.version)
            case "list":
                return self._list(r)
            case "create":
                _place(body, r, name=False)
                return cluster.create(r.kind, body, version=r.version, dry_run=dry_run)
            case "update":
                _place(body, r)
                return cluster.update(
                    r.kind, body, subresource=r.subresource, version=r.version, dry_run=dry_run
                )
            case "patch":
                return self._patch(r, body, dry_run=dry_run)
            case "delete":
                wanted = body.get("preconditions") or {}
                cluster.delete(
                    r.kind,
                    r.name,
                    namespace=r.namespace,
                    uid=wanted.get("uid", ""),
                    resource_version=wanted.get("resourceVersion", ""),
                )
            case _:
                cluster.delete_all(
                    r.kind, namespace=r.namespace, fields=query.get("fieldSelector", "")
                )
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}

    def _list(self, r: Route) -> Obj:
        items, version, token = self.api.cluster.list(
            r.kind,
            namespace=r.namespace,
            labels=r.query.get("labelSelector", ""),
            fields=r.query.get("fieldSelector", ""),
            limit=int(r.query.get("limit") or 0),
            token=r.query.get("continue", ""),
            version=r.version,
        )
        for item in items:  # as the real server
            item.pop("kind")
            item.pop("apiVersion")
        metadata = {"resourceVersion": version, **({"continue": token} if token else {})}
        group = f"{r.kind.group}/{r.version}" if r.kind.group else r.version
        return {
            "kind": f"{r.kind.kind}List",
            "apiVersion": group,
            "metadata": metadata,
            "items": items,
        }

    def _patch(self, r: Route, body: Obj, *, dry_run: bool) -> Obj:
        form = (self.headers.get("Content-Type") or "").partition(";")[0]
        if form == _MERGE:
            return self.api.cluster.patch(
                r.kind,
                r.name,
                body,
                namespace=r.namespace,
                subresource=r.subresource,
                version=r.version,
                dry_run=dry_run,
            )
        if form == _APPLY:
            _place(body, r)
            return self.api.cluster.apply(
                r.kind,
                body,
                manager=r.query.get("fieldManager", ""),
                force=r.query.get("force") == "true",
                subresource=r.subresource,
                version=r.version,
            )
        raise Refusal(415, "UnsupportedMediaType", f"use {_MERGE} or {_APPLY}, not {form!r}")

    def _watch(self, r: Route) -> None:
        query, cluster = r.query, self.api.cluster
        fields = query.get("fieldSelector", "")
        if r.name:
            fields = f"metadata.name={r.name}"
        labels = query.get("labelSelector", "")
        since = query.get("resourceVersion", "")
        first: list[Obj] = []
        if since in {"", "0"}:
            first, since, _ = cluster.list(
                r.kind, namespace=r.namespace, version=r.version, labels=labels, fields=fields
            )
        try:
            watcher = cluster.watch(
                r.kind, since=int(since), namespace=r.namespace, labels=labels, fields=fields
            )
        except Refusal as refusal:  # as the real server: the watch opens, then says so
            self._begin_stream()
            self._event("ERROR", refusal.body())
            return self._end_stream()
        try:
            self._begin_stream()
            for obj in first:
                self._event("ADDED", obj)
            self._follow(r, watcher)
        finally:
            watcher.close()
        return self._end_stream()

    def _follow(self, r: Route, watcher: Watcher) -> None:
        ends = time.monotonic() + float(r.query.get("timeoutSeconds") or 1800)
        bookmarks = r.query.get("allowWatchBookmarks") == "true"
        while not watcher.closed and not self.api.stopping.is_set():
            left = ends - time.monotonic()
            if left <= 0:
                return
            told, version = watcher.next(min(left, self.api.bookmark_every))
            for kind, obj in told:
                copied = json.loads(json.dumps(obj))
                self._event(kind, conversion.from_stored(r.kind, copied, r.version))
            if bookmarks and not told and not watcher.closed:
                self._event("BOOKMARK", _bookmark(r, version))

    def _go_wrong(self, fault: Fault) -> None:
        match fault:
            case Answer():
                raise Refusal(
                    fault.status, fault.reason, fault.message, retry_after=fault.retry_after
                )
            case Hang():
                self._log(0)
                self.api.stopping.wait()
                self.close_connection = True
            case Silence():
                self._begin_stream()
                self.api.stopping.wait()
                self._end_stream()
            case EndAtOnce():
                self._begin_stream()
                self._end_stream()
            case ErrorEvent():
                self._begin_stream()
                self._event("ERROR", Refusal(fault.status, fault.reason, fault.message).body())
                self._end_stream()
            case Garbage():
                self._send(200, b"<html>proxy</html>", {"Content-Type": "text/html"})
            case Cut() | LostAnswer():
                self._vanish()

    def _vanish(self) -> None:
        self._log(0)
        self.close_connection = True

    def _answer(self, status: int, body: Obj, *, retry_after: int | None = None) -> None:
        headers = {"Content-Type": "application/json"}
        if retry_after is not None:
            headers["Retry-After"] = str(retry_after)
        self._send(status, json.dumps(body).encode(), headers)

    def _send(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self._log(status)
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def _begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        self._log(200)

    def _event(self, kind: str, obj: Obj) -> None:
        line = json.dumps({"type": kind, "object": obj}).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.flush()

    def _end_stream(self) -> None:
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _log(self, status: int) -> None:
        verb, resource = self.asked
        agent = self.headers.get("User-Agent", "")
        self.api.requests.add(
            Request(verb=verb, resource=resource, path=self.path, user_agent=agent, status=status)
        )


def _parsed(raw: bytes) -> Obj:
    if not raw:
        return {}
    try:
        body = json.loads(raw)
    except ValueError as error:
        raise bad_request(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise bad_request("the body must be an object")
    return body


def _place(body: Obj, r: Route, *, name: bool = True) -> None:
    """The URL says where an object goes; the body must not contradict it."""
    group = f"{r.kind.group}/{r.version}" if r.kind.group else r.version
    if (body.get("apiVersion"), body.get("kind")) != (group, r.kind.kind):
        raise bad_request(f"the body must be a {r.kind.kind} of {group}")
    metadata = body.setdefault("metadata", {})
    if r.namespace:
        metadata.setdefault("namespace", r.namespace)
    if name:
        metadata.setdefault("name", r.name)
    if metadata.get("namespace", "") != r.namespace or (name and metadata["name"] != r.name):
        raise bad_request("the name or namespace of the object does not match the URL")


def _bookmark(r: Route, version: int) -> Obj:
    group = f"{r.kind.group}/{r.version}" if r.kind.group else r.version
    return {
        "kind": r.kind.kind,
        "apiVersion": group,
        "metadata": {"resourceVersion": str(version)},
    }
