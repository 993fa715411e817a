"""Disks that are full or read-only: what can be done is done, and the text says what to do."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hack.testbed import DRIVER, Testbed

pytestmark = pytest.mark.timeout(120)

Mount = Callable[[Path], None]


@pytest.fixture
def mount(bed: Testbed) -> Iterator[Mount]:
    """A small file system of its own in place of a folder, until the plugin has ended."""
    mounted: list[Path] = []

    def make(path: Path) -> None:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=128k,mode=0700", "tmpfs", str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
        mounted.append(path)

    yield make
    if bed.process is not None:
        bed.stop_plugin()
    for path in reversed(mounted):
        subprocess.run(["umount", str(path)], check=True)


def remount(path: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(path)], check=True)


def fill(folder: Path) -> Path:
    """Until nothing fits any more; remove the file to make room."""
    filler = folder / "filler"
    try:
        with filler.open("wb", buffering=0) as file:
            while file.write(b"\0" * 4096):
                pass
    except OSError:
        return filler
    raise AssertionError("the file system has no end")


def error(bed: Testbed, name: str) -> str:
    claim = bed.allocate(name)
    return bed.kubelet.prepare(DRIVER, [claim])[claim.uid].error


@pytest.mark.parametrize("profile", ["", "1g.10gb"], ids=["whole", "partition"])
def test_a_full_disk_refuses_new_claims_and_lets_old_ones_end(
    bed: Testbed, mount: Mount, profile: str
) -> None:
    mount(bed.plugins)
    bed.start_plugin()
    held = bed.claim("held", profile="1g.10gb")
    assert bed.kubelet.prepare(DRIVER, [held])[held.uid].error == ""
    new = bed.create_claim("new", profile=profile)
    filler = fill(bed.plugins)
    said = error(bed, "new")
    assert f"{bed.ledger}/{new.uid}.json" in said
    assert "free space or inodes on its file system" in said
    bed.end_claim(held)
    assert bed.machine.snapshot() == {}
    bed.stop_plugin()
    bed.start_plugin()
    assert bed.complete()
    filler.unlink(missing_ok=True)
    assert bed.kubelet.prepare(DRIVER, [new])[new.uid].error == ""


def test_a_cdi_folder_that_is_read_only_stops_no_start_and_is_told(
    bed: Testbed, mount: Mount
) -> None:
    mount(bed.cdi)
    bed.start_plugin()
    held = bed.claim("held", profile="1g.10gb")
    first = bed.kubelet.prepare(DRIVER, [held])
    bed.stop_plugin()
    remount(bed.cdi, "ro")
    bed.start_plugin()
    assert bed.complete()
    assert bed.kubelet.prepare(DRIVER, [held]) == first
    bed.create_claim("new", profile="1g.10gb")
    said = error(bed, "new")
    assert f"{bed.cdi}/tessera.dev-claim_" in said
    assert "the mount is read-only" in said
    ended = bed.kubelet.unprepare(DRIVER, [held])[held.uid].error
    assert "the mount is read-only" in ended
    remount(bed.cdi, "rw")
    assert error(bed, "new") == ""
    bed.end_claim(held)
    assert len([*bed.cdi.iterdir()]) == 1


def test_a_plugin_folder_that_is_read_only_ends_with_its_path_and_the_next_step(
    bed: Testbed, mount: Mount
) -> None:
    mount(bed.plugins)
    bed.start_plugin()
    bed.stop_plugin()
    remount(bed.plugins, "ro")
    done = subprocess.run(
        bed.command(),
        env=bed.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    remount(bed.plugins, "rw")
    assert done.returncode in {1, 2}
    last = done.stderr.splitlines()[-1]
    assert str(bed.plugins / DRIVER) in last
    assert "read-only" in last or "readOnly" in last


def test_a_file_where_the_cdi_folder_belongs_is_told_and_waited_for(bed: Testbed) -> None:
    bed.cdi.rmdir()
    bed.cdi.write_text("")
    bed.start_plugin()
    assert bed.complete()
    bed.create_claim("new", profile="1g.10gb")
    assert "something on the path is not a folder" in error(bed, "new")
    bed.cdi.unlink()
    assert error(bed, "new") == ""
