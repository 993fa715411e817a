"""The ledger on disk: one small file a claim, all of them in memory.

Why one file each: claims are prepared in parallel, and a damaged file costs one claim, not all. A
put is one fsync of the file and one of the folder. What another plugin process of the node wrote is
seen at the next question; see `folder_view.py` for what that costs.

What cannot be trusted is set aside into `damaged/` and reported, and work goes on. Where the file
is the one that was read or written before, memory still has the entry, and it is written again;
else recovery rebuilds such a claim from CDI, hardware and API. A folder that is gone is made again,
empty: another plugin may have written since our last look.

A file of a later version stops the start: what it holds is in use, and must neither be given away
nor overwritten. Where one shows up later, `unread` tells it.

Must not know what an entry is for.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Final

from driver.core.errors import StateDamaged, StateError, StateTooNew
from driver.core.ids import ClaimUID
from driver.core.ledger import Entry
from driver.state.atomic import AtomicFolder, Files
from driver.state.failures import state_error
from driver.state.folder_view import FolderView, Stamp
from driver.state.folders import make_folder
from driver.state.ledger_file import decode, encode
from driver.state.uids import checked, is_safe

log = logging.getLogger(__name__)

OnDamage = Callable[[Path, str], None]

_SUFFIX: Final = ".json"
_DAMAGED: Final = "damaged"
_STRIPES: Final = 16
"""Locks for writes: one claim's are in order, those of others wait for no fsync of it."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


class LedgerDir:
    """Implements `driver.ports.state.Ledger`. Safe for several threads, and for processes of which
    only one at a time writes a claim.
    """

    def __init__(
        self,
        path: Path,
        node: str,
        *,
        on_damage: OnDamage,
        now: Callable[[], datetime] = _utc_now,
        now_ns: Callable[[], int] = time.time_ns,
        files: Files | None = None,
    ) -> None:
        """Reads everything. `on_damage(where it was put, why)` is called for each damaged file."""
        self._path = path
        self._node = node
        self._on_damage = on_damage
        self._now = now
        self._memory = Lock()
        self._looking = Lock()
        self._writing = tuple(Lock() for _ in range(_STRIPES))
        self._entries: dict[ClaimUID, Entry] = {}
        self._unread: dict[ClaimUID, str] = {}
        self._touched: set[str] = set()
        self._half_removed: set[str] = set()
        make_folder(path, mode=0o700)
        self._folder = AtomicFolder(path, durable=True, mode=0o600, files=files)
        self._view = FolderView(path, _SUFFIX, now_ns=now_ns)
        self._sweep()
        self._look()
        for problem in self._unread.values():
            raise StateTooNew(problem)

    def entries(self) -> Mapping[ClaimUID, Entry]:
        """As of now; later writes do not change what was returned."""
        if not self._view.unchanged():
            self._look()
        with self._memory:
            return MappingProxyType(self._entries)

    def known(self) -> Mapping[ClaimUID, Entry]:
        """As `entries`, or as last seen where the folder cannot be read now: for those who only
        look. Whoever hands out is told of the trouble by `entries`.
        """
        try:
            return self.entries()
        except StateError as error:
            log.warning("the ledger is shown as it was last seen: %s", error)
        with self._memory:
            return MappingProxyType(self._entries)

    def unread(self) -> Mapping[ClaimUID, str]:
        with self._memory:
            return dict(self._unread)

    def put(self, entry: Entry) -> None:
        """After an error the file may be there nevertheless; `entries` says what is."""
        uid = checked(entry.uid)
        with self._stripe(uid):
            stamp = self._folder.write(f"{uid}{_SUFFIX}", encode(entry, node=self._node))
            self._remember(uid, entry, stamp)

    def remove(self, uid: ClaimUID) -> None:
        """A removal that failed half-way is finished when it is asked for again."""
        uid = checked(uid)
        name = f"{uid}{_SUFFIX}"
        with self._stripe(uid):
            known = uid in self._entries
            # Until it is durable, the entry is shown: a power cut could bring the file back.
            self._half_removed.add(name)
            self._folder.remove(name, sync_missing=known)
            self._remember(uid, None, None)

    def _stripe(self, uid: ClaimUID) -> Lock:
        return self._writing[hash(uid) % _STRIPES]

    def _remember(self, uid: ClaimUID, entry: Entry | None, stamp: Stamp | None) -> None:
        name = f"{uid}{_SUFFIX}"
        with self._memory:
            self._touched.add(name)
            self._half_removed.discard(name)
            if stamp is None:
                self._view.removed(name)
            else:
                self._view.wrote(name, stamp)
            self._set({uid: entry})

    def _set(self, news: Mapping[ClaimUID, Entry | None]) -> None:
        """Never in place: what was given out stays as it was."""
        entries = self._entries | {uid: e for uid, e in news.items() if e is not None}
        self._entries = {k: v for k, v in entries.items() if news.get(k, v) is not None}

    def _look(self) -> None:
        """Read what others wrote. What we write ourselves meanwhile is newer than what is found."""
        with self._looking:
            if self._view.unchanged():
                return  # another thread was first
            self._make_again()
            with self._memory:
                self._touched.clear()
            changes = self._view.look()
            found = {name: self._read(name) for name in changes.changed}
            with self._memory:
                self._take(changes.changed, found, changes.gone)
                if not self._touched and None not in found.values():
                    self._view.finished()

    def _make_again(self) -> None:
        if make_folder(self._path, mode=0o700):
            self._on_damage(self._path, "the folder was gone with all entries, and is made again")

    def _take(
        self,
        stamps: Mapping[str, Stamp],
        found: Mapping[str, Entry | StateError | None],
        gone: frozenset[str],
    ) -> None:
        news: dict[ClaimUID, Entry | None] = {}
        for name, content in found.items():
            if name in self._touched or content is None:
                continue
            self._view.read(name, stamps[name])
            uid = _uid(name)
            self._unread.pop(uid, None)
            if isinstance(content, StateTooNew):
                # An entry that we know from before still says best what is in use.
                self._unread[uid] = str(content)
            else:
                news[uid] = content if isinstance(content, Entry) else None
        for name in gone - self._touched - self._half_removed:
            self._view.removed(name)
            self._unread.pop(_uid(name), None)
            news[_uid(name)] = None
        self._set(news)

    def _read(self, name: str) -> Entry | StateError | None:
        """What there is to know of a file; None where another look must tell."""
        try:
            return self._decoded(name)
        except FileNotFoundError:
            return None
        except StateTooNew as error:
            return error
        except StateError as error:
            known = self._in_memory(name)
            return (known or error) if self._set_aside(name, str(error), known) else None

    def _in_memory(self, name: str) -> Entry | None:
        """The entry of a damaged file, if nobody has replaced that file since we knew it."""
        try:
            now = os.lstat(self._path / name).st_ino
        except OSError:
            return None
        return self._entries.get(_uid(name)) if now == self._view.inode(name) else None

    def _decoded(self, name: str) -> Entry:
        path = self._path / name
        stem = name.removesuffix(_SUFFIX)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise state_error("cannot read", path, error) from error
        entry = decode(data, node=self._node, name=name)
        if entry.uid != stem or not is_safe(stem):
            raise StateDamaged(f"{name}: the file name is not that of claim {entry.uid!r}")
        return entry

    def _set_aside(self, name: str, reason: str, known: Entry | None) -> bool:
        """Whether the matter is settled. Where the file cannot be moved, it is told and left.
        `known`: the entry that is put in its place.
        """
        folder = self._path / _DAMAGED
        kept = folder / f"{name}.damaged-{self._now():%Y%m%dT%H%M%S.%fZ}"
        try:
            make_folder(folder, mode=0o700)
            with self._folder.alone() as alone:
                # Not while somebody writes: it could be a whole one that is moved away.
                if not alone or self._is_whole(name):
                    return False
                if known is None:
                    (self._path / name).rename(kept)
                else:
                    kept.hardlink_to(self._path / name)
                    self._folder.rewrite(name, encode(known, node=self._node))
        except FileNotFoundError:
            return False  # another process, which reads the same folder, was first
        except (OSError, StateError) as error:
            self._on_damage(self._path / name, f"{reason}; it cannot be set aside: {error}")
            return True
        self._on_damage(kept, f"{reason}; written again from memory" if known else reason)
        return True

    def _is_whole(self, name: str) -> bool:
        try:
            self._decoded(name)
        except StateTooNew:
            return True
        except StateError:
            return False
        return True

    def _sweep(self) -> None:
        try:
            self._folder.sweep()
        except StateError as error:  # they take room, nothing else
            log.warning("temp files of a dead plugin stay: %s", error)


def _uid(name: str) -> ClaimUID:
    return ClaimUID(name.removesuffix(_SUFFIX))
