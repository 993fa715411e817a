"""Removing the control groups that an engine left behind.

Why it exists: groups are folders and outlive their processes; after a few unclean ends they are
what makes a machine slow, and an engine refuses to reuse one that is half there.

Must not know: which engine. It is given the one folder name under which everything was put.
"""

from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


def tops(name: str, *, root: Path = ROOT) -> list[Path]:
    """The group of this name in every mounted hierarchy; one on v2, a dozen on v1."""
    candidates = [root / name, *(child / name for child in root.iterdir() if child.is_dir())]
    found = {path.resolve() for path in candidates if path.is_dir()}
    return sorted(found)


def remove(name: str, *, root: Path = ROOT) -> list[Path]:
    """Remove the group and all below it, bottom up. What stays (a process lives in it) is named."""
    left = []
    for top in tops(name, root=root):
        folders = sorted((p for p in top.rglob("*") if p.is_dir()), reverse=True)
        for folder in [*folders, top]:
            try:
                folder.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                left.append(folder)
    return left
