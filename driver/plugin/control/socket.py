"""Where the control socket lies: one name a node, which belongs to the plugin that came last.

Why it exists: an administrator looks for one path, whichever pod is alive. So a new plugin puts its
socket in place of the old one's by renaming, nobody ever finds a socket that does not listen, and
an old plugin that ends removes the name only if it is still its own.

Must not know what is asked through it.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final

from driver.core.errors import ConfigError
from driver.kubelet.sockets import bind_name, remove_own, same_file
from driver.observe.bounded_http import BACKLOG

NAME: Final = "control.sock"
_MODE: Final = 0o600
"""For root alone: whoever may speak to it can acknowledge faults and stop the watch."""


class ControlSocket:
    def __init__(self, folder: Path, *, owner: str) -> None:
        """`owner`: tells two plugins of a node apart, before the socket has its name."""
        self._path = folder / NAME
        self._hidden = bind_name(folder / f"{owner}-{NAME}")
        self._file: os.stat_result | None = None

    @property
    def path(self) -> Path:
        return self._path

    def listen(self) -> socket.socket:
        """ConfigError where there can be none."""
        remove_own(self._hidden)
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.bind(str(self._hidden))
            self._hidden.chmod(_MODE)
            made.listen(BACKLOG)
            self._file = self._hidden.lstat()
            self._hidden.rename(self._path)
        except OSError as error:
            made.close()
            raise ConfigError(
                f"{self._path} cannot be made: {error.strerror or error}; mount its folder from"
                " the host, not read-only, on a file system that has sockets"
            ) from error
        return made

    def remove(self) -> None:
        if self._file is not None and same_file(self._path, self._file):
            self._path.unlink(missing_ok=True)
        self._file = None
