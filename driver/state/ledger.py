"""The ledger on disk: one small file a claim, all of them in memory.

Why one file each: claims are prepared in parallel, and a damaged file costs one claim, not all. A
put is one fsync of the file and one of the folder.

What cannot be trusted is set aside into `damaged/` and reported, and the start goes on; recovery
rebuilds such a claim from CDI, hardware and API. A file of a later version stops the start: what it
holds is in use, and must neither be given away nor overwritten.

Must not know what an entry is for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Final

from driver.core.errors import StateDamaged, StateError
from driver.core.ids import ClaimUID
from driver.core.ledger import Entry
from driver.state.atomic import AtomicFolder, Files
from driver.state.failures import state_error
from driver.state.folders import make_folder
from driver.state.ledger_file import decode, encode
from driver.state.uids import checked, is_safe

OnDamage = Callable[[Path, str], None]

_SUFFIX: Final = ".json"
_DAMAGED: Final = "damaged"
_STRIPES: Final = 16
"""Locks for writes: one claim's are in order, those of others wait for no fsync of it."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


class LedgerDir:
    """Implements `driver.ports.state.Ledger`. Safe for several threads."""

    def __init__(
        self,
        path: Path,
        node: str,
        *,
        on_damage: OnDamage,
        now: Callable[[], datetime] = _utc_now,
        files: Files | None = None,
    ) -> None:
        """Reads everything. `on_damage(where it was put, why)` is called for each damaged file."""
        self._path = path
        self._node = node
        self._on_damage = on_damage
        self._now = now
        self._memory = Lock()
        self._writing = tuple(Lock() for _ in range(_STRIPES))
        self._entries: dict[ClaimUID, Entry] = {}
        make_folder(path, mode=0o700)
        self._folder = AtomicFolder(path, durable=True, mode=0o600, files=files)
        self._folder.sweep()
        self.reload()

    def entries(self) -> Mapping[ClaimUID, Entry]:
        """As of now; later writes do not change what was returned."""
        with self._memory:
            return MappingProxyType(self._entries)

    def put(self, entry: Entry) -> None:
        uid = checked(entry.uid)
        name = f"{uid}{_SUFFIX}"
        with self._stripe(uid):
            try:
                self._folder.write(name, encode(entry, node=self._node))
            except StateError:
                # The rename may have happened. What a restart would find must count now as well.
                with suppress(StateError):  # the first failure is the one to tell
                    if self._decoded(name) == entry:
                        self._remember(uid, entry)
                raise
            self._remember(uid, entry)

    def remove(self, uid: ClaimUID) -> None:
        """A removal that failed half-way is finished when it is asked for again."""
        uid = checked(uid)
        with self._stripe(uid):
            self._folder.remove(f"{uid}{_SUFFIX}", sync_missing=uid in self.entries())
            self._remember(uid, None)

    def reload(self) -> None:
        """Read again what is on disk, after another process may have written."""
        with ExitStack() as stack:
            for lock in self._writing:
                stack.enter_context(lock)
            entries = dict(self._read())
            with self._memory:
                self._entries = entries

    def _stripe(self, uid: ClaimUID) -> Lock:
        return self._writing[hash(uid) % _STRIPES]

    def _remember(self, uid: ClaimUID, entry: Entry | None) -> None:
        with self._memory:
            entries = {k: v for k, v in self._entries.items() if k != uid}
            if entry is not None:
                entries[uid] = entry
            self._entries = entries

    def _read(self) -> Iterator[tuple[ClaimUID, Entry]]:
        for path in sorted(self._path.glob(f"*{_SUFFIX}")):
            try:
                entry = self._decoded(path.name)
            except StateDamaged as error:
                self._set_aside(path, str(error))
                continue
            if entry is not None:
                yield entry.uid, entry

    def _decoded(self, name: str) -> Entry | None:
        """None where there is no such file."""
        path = self._path / name
        stem = name.removesuffix(_SUFFIX)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise state_error("cannot read", path, error) from error
        entry = decode(data, node=self._node, name=name)
        if entry.uid != stem or not is_safe(stem):
            raise StateDamaged(f"{name}: the file name is not that of claim {entry.uid!r}")
        return entry

    def _set_aside(self, path: Path, reason: str) -> None:
        folder = self._path / _DAMAGED
        make_folder(folder, mode=0o700)
        kept = folder / f"{path.name}.damaged-{self._now():%Y%m%dT%H%M%S.%fZ}"
        try:
            path.rename(kept)
        except FileNotFoundError:
            return  # another process, which reads the same folder, was first
        except OSError as error:
            raise state_error("cannot set aside", path, error) from error
        self._on_damage(kept, reason)
