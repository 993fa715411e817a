"""Claim UIDs as parts of file names.

Why it exists: a UID comes over a socket; before it names a file it must be unable to name another
folder, a hidden file or one of our temp files.
"""

from __future__ import annotations

import re
from typing import Final

from driver.core.errors import StateError
from driver.core.ids import ClaimUID

_SAFE: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,127}", re.ASCII)


def is_safe(uid: str) -> bool:
    return _SAFE.fullmatch(uid) is not None


def checked(uid: ClaimUID) -> ClaimUID:
    """StateError where the UID cannot be a file name."""
    if not is_safe(uid):
        raise StateError(
            f"claim UID {uid[:80]!r} cannot be a file name: letters, digits, '-' and '_' are"
            " allowed, 128 at most; the kubelet sends the API's UIDs, so look at who sent this one"
        )
    return uid
