"""The evidence on disk: one file in the plugin's folder, replaced as a whole.

Why it exists: a restart must forget nothing that is held against a GPU, and must not cost a write
for each of ten thousand equal kernel lines. What changes a judgement, or a proof, is written at
once; how often and when last something was seen, a little later.

A damaged file is kept aside, and in its place comes evidence by which no GPU is known to be well.
It is linked aside, then replaced: killed in between, the next start finds it damaged again. A file
of a later version stops the start.

Must not know what an item means. One owner; not for several threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from driver.core.errors import StateDamaged, StateError
from driver.core.health.evidence import begun, damaged
from driver.core.health.items import Evidence
from driver.core.health.weight import weighs_alike
from driver.state.atomic import AtomicFolder, Files
from driver.state.evidence_file import decode, encode
from driver.state.failures import state_error
from driver.state.folders import make_folder

NAME: Final = "evidence.json"
COUNTERS_SECONDS: Final = 5.0

OnDamage = Callable[[Path, str], None]


class EvidenceFile:
    """Times are seconds since the epoch, passed in."""

    def __init__(
        self, folder: Path, node: str, *, on_damage: OnDamage, files: Files | None = None
    ) -> None:
        """`on_damage(where it is, why)` is called when what was stored is lost."""
        self._path = folder / NAME
        self._node = node
        self._on_damage = on_damage
        make_folder(folder, mode=0o700)
        self._folder = AtomicFolder(folder, durable=True, mode=0o600, files=files)
        self._written: Evidence | None = None
        self._written_at = float("-inf")

    def load(self, *, boot_id: str, now: float) -> Evidence:
        """What was stored, as it stands now. Empty on a node that never had any."""
        try:
            stored = self._read()
        except StateDamaged as error:
            return self._lost(str(error), boot_id=boot_id, now=now)
        if stored is None:
            return begun(Evidence(), boot_id=boot_id, now=now)
        self._written, self._written_at = stored, now
        return begun(stored, boot_id=boot_id, now=now)

    def save(self, evidence: Evidence, *, now: float) -> float | None:
        """Write it if that matters. When to ask again, because only counters have changed; else
        None. StateError where it could not be written: ask again.
        """
        before = self._written
        if before is not None:
            if _stored(evidence) == _stored(before):
                return None
            due = self._written_at + COUNTERS_SECONDS
            if weighs_alike(evidence, before) and self._written_at <= now < due:
                return due
        self._folder.write(NAME, encode(evidence, node=self._node))
        self._written, self._written_at = evidence, now
        return None

    def _read(self) -> Evidence | None:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            reason = str(state_error("cannot read", self._path, error))
            raise StateDamaged(reason) from error
        return decode(data, node=self._node, name=self._path.name)

    def _lost(self, reason: str, *, boot_id: str, now: float) -> Evidence:
        """The disk may be what is broken, so failing to keep the file is told, and no more."""
        evidence = damaged(reason, boot_id=boot_id, now=now)
        stamp = f"{datetime.fromtimestamp(now, UTC):%Y%m%dT%H%M%S.%fZ}"
        kept = self._path.with_name(f"{NAME}.damaged-{stamp}")
        try:
            kept.hardlink_to(self._path)
            self.save(evidence, now=now)
        except (OSError, StateError) as error:
            self._on_damage(self._path, f"{reason}; and it cannot be replaced: {error}")
        else:
            self._on_damage(kept, reason)
        return evidence


def _stored(evidence: Evidence) -> Evidence:
    return replace(evidence, clock=0.0, tries={})
