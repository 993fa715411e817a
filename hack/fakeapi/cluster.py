"""What the API server does with objects, without HTTP: the demonstration and tests seed through it.

Every argument and every answer is the caller's own copy.
"""

from __future__ import annotations

import copy
import itertools
import uuid
from typing import Any

from hack.fakeapi import conversion, merge, strategy
from hack.fakeapi.history import History, Key
from hack.fakeapi.kinds import Kind, by_plural
from hack.fakeapi.refusal import (
    bad_request,
    conflict,
    exists,
    expired,
    not_found,
)
from hack.fakeapi.selectors import selector
from hack.fakeapi.strategy import Settings
from hack.fakeapi.watcher import Watcher

Obj = dict[str, Any]
Objs = list[Obj]
_FIXED = ("uid", "creationTimestamp", "name", "namespace", "generation", "resourceVersion")


class Cluster:
    """Kinds may be given by their plural. `subresource` is "" or "status"."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.history = History()
        self._serial = itertools.count()
        self._owned: dict[tuple[Key, str, str], set[merge.Path]] = {}
        self._continued: dict[str, tuple[int, Objs]] = {}

    def get(self, kind: Kind | str, name: str, namespace: str = "", version: str = "v1") -> Obj:
        kind = _kind(kind)
        with self.history.changed:
            return _out(kind, self._stored(kind, namespace, name), version)

    def list(
        self,
        kind: Kind | str,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        token: str = "",
        version: str = "v1",
    ) -> tuple[list[Obj], str, str]:
        """Items, the version of the list, and the token of the next page (empty: none)."""
        kind = _kind(kind)
        with self.history.changed:
            if token:
                at, found = self._continue(token)
            else:
                test = selector(kind, labels, fields, namespace)
                at, found = self.history.version, [o for o in self.history.of(kind) if test(o)]
            page, rest = (found[:limit], found[limit:]) if limit else (found, [])
            following = ""
            if rest:
                following = f"page-{next(self._serial)}"
                self._continued[following] = (at, rest)
            return [_out(kind, obj, version) for obj in page], str(at), following

    def watch(
        self,
        kind: Kind | str,
        *,
        since: int,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
    ) -> Watcher:
        kind = _kind(kind)
        return Watcher(self.history, kind, selector(kind, labels, fields, namespace), since)

    def create(
        self, kind: Kind | str, obj: Obj, *, version: str = "v1", dry_run: bool = False
    ) -> Obj:
        kind = _kind(kind)
        new = conversion.to_stored(kind, copy.deepcopy(obj), version)
        metadata = new.setdefault("metadata", {})
        with self.history.changed:
            if not metadata.get("name") and metadata.get("generateName"):
                metadata["name"] = metadata["generateName"][:58] + _suffix(next(self._serial))
            key = self._key(kind, metadata)
            if self.history.get(key) is not None:
                raise exists(kind.plural, metadata["name"])
            metadata |= {
                "uid": str(uuid.uuid4()),
                "creationTimestamp": strategy.now(),
                "generation": 1,
            }
            if kind.status:
                kept = new.pop("status", None)
                if kind.plural in {"nodes", "pods"} and kept:
                    new["status"] = kept  # as the real server: the kubelet reports with creation
            return self._store(key, new, None, version, dry_run=dry_run)

    def update(
        self,
        kind: Kind | str,
        obj: Obj,
        *,
        subresource: str = "",
        version: str = "v1",
        dry_run: bool = False,
    ) -> Obj:
        kind = _kind(kind)
        new = conversion.to_stored(kind, copy.deepcopy(obj), version)
        metadata = new.get("metadata") or {}
        with self.history.changed:
            old = self._stored(kind, metadata.get("namespace", ""), metadata.get("name", ""))
            _check_preconditions(kind, old, metadata)
            return self._replace(kind, old, new, subresource, version, dry_run=dry_run)

    def patch(
        self,
        kind: Kind | str,
        name: str,
        patch: Obj,
        *,
        namespace: str = "",
        subresource: str = "",
        version: str = "v1",
        dry_run: bool = False,
    ) -> Obj:
        """JSON merge patch."""
        kind = _kind(kind)
        with self.history.changed:
            old = self._stored(kind, namespace, name)
            shown = conversion.from_stored(kind, copy.deepcopy(old), version)
            new = conversion.to_stored(kind, merge.merge_patch(shown, patch), version)
            _check_preconditions(kind, old, new["metadata"])
            return self._replace(kind, old, new, subresource, version, dry_run=dry_run)

    def apply(
        self,
        kind: Kind | str,
        obj: Obj,
        *,
        manager: str,
        force: bool = False,
        subresource: str = "",
        version: str = "v1",
    ) -> Obj:
        """Server-side apply. Creates what is not there, but for a subresource."""
        kind = _kind(kind)
        if not manager:
            raise bad_request("PatchOptions.meta.k8s.io is invalid: fieldManager: Required value")
        applied = conversion.to_stored(kind, copy.deepcopy(obj), version)
        key = self._key(kind, applied["metadata"])
        with self.history.changed:
            old = self.history.get(key)
            if old is None and not subresource:
                created = self.create(kind, obj, version=version)
                self._owned[key, manager, subresource] = set(merge.owned_by(applied))
                return created
            old = self._stored(kind, key[1], key[2])
            _check_preconditions(kind, old, applied["metadata"])
            mine = merge.owned_by(applied)
            given_up = self._settle_owners(key, manager, subresource, old, mine, force=force)
            new = merge.apply(old, applied, given_up=given_up)
            stored = self._replace(kind, old, new, subresource, version, dry_run=False)
            self._owned[key, manager, subresource] = set(mine)
            return stored

    def delete(
        self,
        kind: Kind | str,
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        resource_version: str = "",
    ) -> None:
        kind = _kind(kind)
        with self.history.changed:
            old = self._stored(kind, namespace, name)
            wanted = {"uid": uid, "resourceVersion": resource_version}
            _check_preconditions(kind, old, wanted)
            key = (kind, namespace, name)
            self.history.put(key, None)
            for owned in [o for o in self._owned if o[0] == key]:
                del self._owned[owned]

    def delete_all(self, kind: Kind | str, *, namespace: str = "", fields: str = "") -> int:
        """What the kubelet does to the slices of its node. Returns how many are gone."""
        kind = _kind(kind)
        with self.history.changed:
            test = selector(kind, "", fields, namespace)
            gone = [o["metadata"] for o in self.history.of(kind) if test(o)]
            for metadata in gone:
                self.delete(kind, metadata["name"], namespace=metadata.get("namespace", ""))
            return len(gone)

    def compact(self) -> None:
        """Watches from before now, and pages that were begun before now, get 410."""
        with self.history.changed:
            self._continued.clear()
            self.history.compact()

    def _replace(
        self, kind: Kind, old: Obj, new: Obj, subresource: str, version: str, *, dry_run: bool
    ) -> Obj:
        """Only the part that `subresource` may write is taken from `new`."""
        if subresource == "status":
            part = {"status": new["status"]} if new.get("status") else {}
            new = {**{k: v for k, v in old.items() if k != "status"}, **part}
        elif kind.status and "status" in old:
            new = {**new, "status": old["status"]}
        elif kind.status:
            new.pop("status", None)
        new = copy.deepcopy(new)
        new["metadata"] |= {k: old["metadata"][k] for k in _FIXED if k in old["metadata"]}
        key = self._key(kind, old["metadata"])
        return self._store(key, new, old, version, dry_run=dry_run)

    def _store(self, key: Key, new: Obj, old: Obj | None, version: str, *, dry_run: bool) -> Obj:
        kind = key[0]
        new |= {"apiVersion": _stored_version(kind), "kind": kind.kind}
        strategy.prepare(kind, new, old, self.settings)
        if old is not None:
            if new.get("spec") != old.get("spec"):
                new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
            if new == old:
                return _out(kind, old, version)  # as the real server: nothing is told
        if dry_run:
            return _out(kind, new, version)
        return _out(kind, self.history.put(key, new), version)

    def _settle_owners(
        self,
        key: Key,
        manager: str,
        subresource: str,
        old: Obj,
        mine: dict[merge.Path, Any],
        *,
        force: bool,
    ) -> set[merge.Path]:
        """Paths that `manager` gives up and nobody else owns; 409 where another's would change."""
        others: set[merge.Path] = set()
        stored = merge.owned_by(old)
        for (k, name, sub), paths in self._owned.items():
            if k != key or (name, sub) == (manager, subresource):
                continue
            taken = {p for p in paths & set(mine) if stored.get(p) != mine[p]}
            if taken and not force:
                names = ", ".join("." + ".".join(p) for p in sorted(taken))
                raise conflict(key[0].plural, key[2], f'conflict with "{name}": {names}')
            paths.difference_update(taken)
            others |= paths
        return self._owned.get((key, manager, subresource), set()) - set(mine) - others

    def _continue(self, token: str) -> tuple[int, Objs]:
        if token not in self._continued:
            raise expired("The provided continue parameter is too old")
        return self._continued[token]

    def _stored(self, kind: Kind, namespace: str, name: str) -> Obj:
        stored = self.history.get((kind, namespace, name))
        if stored is None:
            raise not_found(kind.plural, name)
        return stored

    def _key(self, kind: Kind, metadata: Obj) -> Key:
        namespace = metadata.get("namespace") or ""
        if kind.namespaced != bool(namespace):
            raise bad_request(f"{kind.kind}: namespace {namespace!r} does not fit its scope")
        if not metadata.get("name"):
            raise bad_request("name or generateName is required")
        return kind, namespace, metadata["name"]


def _check_preconditions(kind: Kind, old: Obj, wanted: Obj) -> None:
    for field in ("uid", "resourceVersion"):
        if wanted.get(field) and wanted[field] != old["metadata"][field]:
            why = f"{field} is {old['metadata'][field]}, not {wanted[field]}"
            raise conflict(kind.plural, old["metadata"]["name"], why)


def _out(kind: Kind, stored: Obj, version: str) -> Obj:
    return conversion.from_stored(kind, copy.deepcopy(stored), version)


def _stored_version(kind: Kind) -> str:
    version = kind.versions[0]
    return f"{kind.group}/{version}" if kind.group else version


def _kind(kind: Kind | str) -> Kind:
    return by_plural(kind) if isinstance(kind, str) else kind


def _suffix(number: int) -> str:
    """Five characters, unique in this cluster, and not in order: nobody may rely on that."""
    return f"{number * 7_919 % 100_000:05d}"
