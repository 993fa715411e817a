"""From `OSError` to `StateError`, in one place, so that every message has path and next step.

Must not know what the file is for; the caller says that in `doing`.
"""

from __future__ import annotations

import errno
import os
from typing import Final

from driver.core.errors import StateError

_NEXT: Final = {
    errno.ENOSPC: "free space or inodes on its file system (df -h, df -i)",
    errno.EDQUOT: "raise the quota or free space on its file system",
    errno.EROFS: "the mount is read-only: check the pod's volume, and dmesg for a disk error",
    errno.EACCES: "check owner, mode and the pod's security context: it must run as root",
    errno.EPERM: "check file attributes (lsattr) and the pod's security context",
    errno.EIO: "the disk failed: see dmesg, and move the folder or repair the node",
    errno.ENOENT: "the folder is gone: check the pod's hostPath volume",
    errno.ENOTDIR: "something on the path is not a folder: remove it or set another path",
    errno.EEXIST: "something that is not a folder is in the way: remove it",
    errno.EISDIR: "a folder is in the way: remove it",
    errno.EMFILE: "the plugin leaks file descriptors, or its limit is too low: restart it",
}


def state_error(doing: str, path: str | os.PathLike[str], error: OSError) -> StateError:
    """`doing`: what failed, as in "cannot write". The caller raises it `from error`."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    step = _NEXT.get(error.errno or 0, "check the path and the kernel log (dmesg)")
    return StateError(f"{doing} {os.fspath(path)}: {reason}; {step}")
