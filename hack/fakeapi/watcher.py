"""One watch: changes of one kind, seen through one selector."""

from __future__ import annotations

from typing import Any

from hack.fakeapi.history import Change, History
from hack.fakeapi.kinds import Kind
from hack.fakeapi.refusal import expired
from hack.fakeapi.selectors import Test

Obj = dict[str, Any]
Told = tuple[str, Obj]


class Watcher:
    """`version`: everything up to it has been pulled."""

    def __init__(self, history: History, kind: Kind, test: Test, since: int) -> None:
        self._history = history
        self._kind = kind
        self._test = test
        self._pending: list[Told] = []
        self.version = since
        self.closed = False
        with history.changed:
            if since < history.compacted:
                raise expired(f"too old resource version: {since} ({history.compacted})")
            history.watchers.add(self)

    def next(self, timeout: float) -> tuple[list[Told], int]:
        """Waits for something to tell; nothing after `timeout` seconds, or where `closed`.

        Also the version up to which this is all there was to tell.
        """
        with self._history.changed:
            self.pull()
            if not self._pending and not self.closed:
                self._history.changed.wait_for(self._has_news, timeout)
            told, self._pending = self._pending, []
            return told, self.version

    def close(self) -> None:
        """Whoever waits in `next` returns."""
        with self._history.changed:
            self.closed = True
            self._history.watchers.discard(self)
            self._history.changed.notify_all()

    def pull(self) -> None:
        """Also called before the history forgets, so that a live watch loses nothing."""
        for change in self._history.since(self.version):
            if change.kind == self._kind and (told := self._told(change)):
                self._pending.append(told)
        self.version = max(self.version, self._history.version)

    def _has_news(self) -> bool:
        self.pull()
        return bool(self._pending) or self.closed

    def _told(self, change: Change) -> Told | None:
        """An object that leaves the selection is told as deleted, one that enters it as added."""
        was = change.old is not None and self._test(change.old)
        is_now = change.new is not None and self._test(change.new)
        if is_now and change.new is not None:
            return ("MODIFIED" if was else "ADDED"), change.new
        if not was or change.old is None:
            return None
        version = {**change.old["metadata"], "resourceVersion": str(change.version)}
        return "DELETED", {**change.old, "metadata": version}
