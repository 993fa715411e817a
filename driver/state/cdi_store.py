"""Our specifications in the CDI folder, one file a claim.

Why without fsync: the folder is a tmpfs on most nodes, and a file that a power cut takes away is
noticed. The next boot has another boot id, so the ledger's entry does not count any more, and the
preparation that follows writes the file again. What matters is that a container runtime, which may
read at any moment, never sees half a file; the rename gives that.

Must not know what a specification says.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from driver.core.cdi import JsonValue
from driver.core.errors import ConfigError, StateError
from driver.core.ids import ClaimUID
from driver.core.names import CDI_CLASS, CDI_VENDOR, cdi_file
from driver.state.atomic import AtomicFolder, Files
from driver.state.failures import state_error
from driver.state.folders import make_folder
from driver.state.uids import checked, is_safe

log = logging.getLogger(__name__)

_PREFIX: Final = f"{CDI_VENDOR}-{CDI_CLASS}_"
_SUFFIX: Final = ".json"
_FOLDER_MODE: Final = 0o755
_FILE_MODE: Final = 0o644
"""Readable for all: rootless runtimes read the folder too."""


class CdiDir:
    """Implements `driver.ports.state.CdiStore`. Safe for several threads."""

    def __init__(self, path: Path, *, create: bool = True, files: Files | None = None) -> None:
        """Never fails for a folder that cannot be written now: what is there can still be served
        and taken back, and each new file says what is wrong.
        """
        self._path = path
        self._create = create
        if not create and not path.is_dir():
            raise ConfigError(
                f"cdi_dir {path} is not a folder; set it to one that the container runtime reads"
                " (containerd: cdi_spec_dirs), and mount it into the pod"
            )
        self._folder = AtomicFolder(path, durable=False, mode=_FILE_MODE, files=files)
        try:
            if create:
                make_folder(path, mode=_FOLDER_MODE)
            self._folder.sweep()
        except StateError as error:
            log.warning("no claim can be prepared until the CDI folder is well: %s", error)

    def ensure(self, uid: ClaimUID, spec: Mapping[str, JsonValue]) -> bool:
        """Make the file equal to `spec`; whether it had to be written."""
        name = cdi_file(checked(uid))
        # One line: with an indent the encoder is pure Python, and this is done at each preparation.
        data = json.dumps(spec, sort_keys=True, separators=(",", ":")).encode() + b"\n"
        if self._read(name) == data:
            return False
        if self._create:
            make_folder(self._path, mode=_FOLDER_MODE)  # it may have been cleaned away since
        self._folder.write(name, data)
        return True

    def remove(self, uid: ClaimUID) -> None:
        name = cdi_file(checked(uid))
        # A read-only folder refuses to remove what is not there, too.
        if os.path.lexists(self._path / name):
            self._folder.remove(name)

    def claims(self) -> frozenset[ClaimUID]:
        """By file name alone; whether the content is right is for `ensure` to see."""
        try:
            names = os.listdir(self._path)  # noqa: PTH208 - on the way of each preparation
        except (FileNotFoundError, NotADirectoryError):
            return frozenset()
        except OSError as error:
            raise state_error("cannot read", self._path, error) from error
        ours = (n for n in names if n.startswith(_PREFIX) and n.endswith(_SUFFIX))
        uids = (n.removeprefix(_PREFIX).removesuffix(_SUFFIX) for n in ours)
        return frozenset(ClaimUID(u) for u in uids if is_safe(u))

    def read(self, uid: ClaimUID) -> JsonValue | None:
        """The claim's file, parsed; None where there is none, or nothing that can be parsed."""
        try:
            data = self._read(cdi_file(checked(uid)))
            return None if data is None else json.loads(data)
        except (ValueError, RecursionError):
            return None

    def _read(self, name: str) -> bytes | None:
        path = self._path / name
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise state_error("cannot read", path, error) from error
