"""Content-keyed results of slow steps, complete or absent.

Why it exists: building Kubernetes takes half an hour, so it happens once per content; and a build
that was killed must never look like a result.

Must not know: what is built. A key covers everything that decides the result and nothing else: an
edit of a comment must not cost half an hour.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from hack.kind.paths import cache_root

KEY_LENGTH = 16
PARTIAL = ".partial-"


def key(*parts: object, files: Iterable[Path] = ()) -> str:
    """Hash of values (as JSON) and of files' names and bytes; the order of files is irrelevant."""
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode())
    for path in sorted(files):
        content = path.read_bytes()
        digest.update(f"\0{path.name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:KEY_LENGTH]


def entry(kind: str, content: str, *, root: Path | None = None) -> Path:
    """Where the result of kind `kind` with this key is or will be."""
    return (root or cache_root()) / f"{kind}-{content}"


def ensure(
    kind: str, content: str, build: Callable[[Path], None], *, root: Path | None = None
) -> Path:
    """The folder of the result; `build` fills it if it is absent. A failed build leaves its logs.

    The partial folder is named by kind, key and pid: a second builder of the same content loses
    the rename, and its work is dropped in favour of the first one's equal result.
    """
    final = entry(kind, content, root=root)
    if final.is_dir():
        return final
    final.parent.mkdir(parents=True, exist_ok=True)
    partial = final.with_name(f"{PARTIAL}{final.name}-{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    build(partial)
    try:
        partial.rename(final)
    except OSError:
        if not final.is_dir():
            raise
        shutil.rmtree(partial)
    return final


def stale(kept: Iterable[Path], *, root: Path | None = None) -> list[Path]:
    """Entries that are not in `kept`, and builds that no living process is working on."""
    base = root or cache_root()
    if not base.is_dir():
        return []
    keep = set(kept)
    return sorted(p for p in base.iterdir() if p.is_dir() and p not in keep and not _in_work(p))


def _in_work(path: Path) -> bool:
    if not path.name.startswith(PARTIAL):
        return False
    return Path("/proc", path.name.rpartition("-")[2]).exists()
