"""Debian trees made by debootstrap: the ground of the node image and of the project's own image.

Why it exists: without a registry there is no base image to pull, but there is a Debian mirror.

Must not know: what is put on top. A tree's key is the suite, the packages and the steps here; the
mirror decides point releases, which is accepted: test images follow security updates.
"""

import shutil
from pathlib import Path
from typing import Final

from hack.kind import cache, versions
from hack.kind.archive import ImageConfig, write_image
from hack.kind.host import apt_mirror
from hack.kind.shell import logged, require, step

# Neither is read by a program in a test image; together they are a third of the tree.
USELESS: Final = (
    "var/cache/apt",
    "var/lib/apt/lists",
    "usr/share/doc",
    "usr/share/locale",
    "usr/share/man",
    "usr/share/info",
    "var/log/bootstrap.log",
    "debootstrap",
)
PYTHON_BASE: Final = ("ca-certificates", "python3", "python3-venv")
BASE_NAME: Final = "tessera-base"


def tree_key(packages: tuple[str, ...]) -> str:
    return cache.key(versions.DEBIAN_SUITE, sorted(packages), USELESS)


def unpack_tree(packages: tuple[str, ...], root: Path, log: Path) -> None:
    """A minimal Debian with these packages at `root`; debootstrap runs once per set of packages."""

    def build(out: Path) -> None:
        with step(f"Debian tree with {len(packages)} packages (a minute or two)"):
            _bootstrap(packages, out / "tree", out / "debootstrap.log")
            pack = ["tar", "-C", str(out / "tree"), "--numeric-owner", "--sort=name", "-cf"]
            logged([*pack, str(out / "tree.tar"), "."], out / "tar.log")
            shutil.rmtree(out / "tree")

    archive = cache.ensure("debian", tree_key(packages), build) / "tree.tar"
    root.mkdir()
    logged(["tar", "-C", str(root), "--numeric-owner", "-xpf", str(archive)], log)


def _bootstrap(packages: tuple[str, ...], root: Path, log: Path) -> None:
    require("debootstrap", "tar")
    argv = [
        "debootstrap",
        "--variant=minbase",
        f"--include={','.join(sorted(packages))}",
        versions.DEBIAN_SUITE,
        str(root),
    ]
    if mirror := apt_mirror():
        argv.append(mirror)
    logged(argv, log)
    for path in USELESS:
        target = root / path
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)
    # apt refuses to work without these two; a Dockerfile may want it.
    (root / "var/cache/apt/archives/partial").mkdir(parents=True)
    (root / "var/lib/apt/lists/partial").mkdir(parents=True)


def base_image() -> tuple[str, Path]:
    """Name and archive of the image that the project's Dockerfile builds on."""
    content = tree_key(PYTHON_BASE)
    name = f"{BASE_NAME}:{content}"

    def build(out: Path) -> None:
        with step(f"Debian base image {name}"):
            unpack_tree(PYTHON_BASE, out / "tree", out / "tar.log")
            config = ImageConfig(entrypoint=(), command=("/usr/bin/python3",))
            write_image(out / "image.tar", name, out / "tree", config)
            shutil.rmtree(out / "tree")

    return name, cache.ensure(BASE_NAME, content, build) / "image.tar"
