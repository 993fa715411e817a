"""The library comes late, goes, is replaced and comes back, in one process."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor

import pynvml
import pytest

from driver.core.errors import DriverNotLoaded, LibraryMissing, NvmlError
from driver.nvml import NvmlLibrary
from driver.nvml.library import find_library
from hack.simnvml.kit import Machine
from tests.nvml.conftest import LIBRARY, Topology, install_library

OTHER_BRANCH = "610.12.04"


def test_the_library_of_the_driver_root_is_loaded_once_and_kept(make_node) -> None:
    node = make_node()
    node.snapshot()
    node.snapshot()
    assert node.machine.calls("nvmlInit*") == 1
    assert node.machine.calls("nvmlShutdown") == 0
    assert node.mapped()


def test_close_lets_go_of_every_handle_and_asks_nothing_more(make_node) -> None:
    node = make_node()
    node.snapshot()
    node.library.close()
    assert node.symbols()[-1] == "nvmlShutdown"
    assert not node.mapped()
    before = node.machine.calls()
    node.library.close()
    assert node.machine.calls() == before


def test_after_close_the_next_snapshot_opens_again(make_node) -> None:
    node = make_node()
    first = node.snapshot()
    node.library.close()
    assert node.snapshot() == first
    assert node.machine.calls("nvmlInit*") == 2


def test_a_missing_library_names_every_folder_that_was_searched(make_node) -> None:
    node = make_node()
    shutil.rmtree(node.root / "usr")
    with pytest.raises(LibraryMissing) as caught:
        node.snapshot()
    text = str(caught.value)
    for folder in ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "lib64"):
        assert folder in text
    assert f"below {node.root}; " in text
    assert "set driver_root or nvml_library" in text


def test_an_absolute_link_leads_to_the_roots_own_folder(make_node) -> None:
    node = make_node()
    link, there = node.root / LIBRARY, node.library_file()
    moved = node.root / "opt/driver/libnvidia-ml.so.580"
    moved.parent.mkdir(parents=True)
    there.rename(moved)
    link.unlink()
    link.symlink_to("/opt/driver/libnvidia-ml.so.580")
    assert find_library(node.root) == moved
    assert node.snapshot().gpus


@pytest.mark.parametrize("folder", ["usr/lib64", "usr/lib/aarch64-linux-gnu", "lib64"])
def test_the_library_is_found_where_other_distributions_put_it(make_node, folder) -> None:
    node = make_node()
    (node.root / folder).parent.mkdir(parents=True, exist_ok=True)
    (node.root / LIBRARY).parent.rename(node.root / folder)
    assert len(node.snapshot().gpus) == 2


def test_a_library_that_comes_later_is_found_then(make_node) -> None:
    node = make_node()
    away = node.root / "away"
    (node.root / "usr").rename(away)
    with pytest.raises(LibraryMissing):
        node.snapshot()
    away.rename(node.root / "usr")
    assert len(node.snapshot().gpus) == 2


def test_a_file_that_is_no_library_is_named_with_the_loaders_reason(make_node) -> None:
    node = make_node()
    node.library_file().write_text("not a library")
    with pytest.raises(LibraryMissing, match=r"libnvidia-ml\.so\.\S+ cannot be loaded: .*"):
        node.snapshot()


def test_a_file_that_is_set_is_loaded_and_the_driver_root_is_not_searched(
    make_node, tmp_path
) -> None:
    node = make_node()
    elsewhere = tmp_path / "libnvidia-ml-custom.so"
    shutil.move(node.library_file(), elsewhere)
    library = NvmlLibrary(
        driver_root=tmp_path / "nothing here",
        topology=Topology(sys=node.root / "sys"),
        library=elsewhere,
    )
    assert len(library.snapshot().gpus) == 2
    library.close()


def test_a_driver_that_is_unloaded_is_an_error_until_it_is_back(make_node) -> None:
    node = make_node()
    first = node.snapshot()
    node.machine.driver_loaded(False)
    for _ in range(2):
        with pytest.raises(DriverNotLoaded, match="the NVIDIA kernel driver is not loaded"):
            node.snapshot()
        assert not node.mapped()
    node.machine.driver_loaded(True)
    assert node.snapshot() == first


def test_library_and_kernel_of_different_versions_say_finish_the_update(make_node) -> None:
    node = make_node()
    node.snapshot()
    node.machine.set(version_mismatch=1)
    with pytest.raises(DriverNotLoaded, match="finish the driver update"):
        node.snapshot()
    node.machine.set(version_mismatch=0)
    assert len(node.snapshot().gpus) == 2


def test_an_initialisation_that_fails_otherwise_is_tried_anew_with_a_fresh_load(make_node) -> None:
    node = make_node()
    with node.machine.rule("nvmlInit*", ret=pynvml.NVML_ERROR_UNKNOWN, times=1):
        with pytest.raises(NvmlError, match=r"^nvmlInit: Unknown Error"):
            node.snapshot()
        assert not node.mapped()
        assert len(node.snapshot().gpus) == 2


@pytest.mark.parametrize("let_go", ["close", "driver unloaded", "driver unloaded at start"])
@pytest.mark.parametrize("same_name", [False, True], ids=["new file name", "same file name"])
def test_a_library_that_was_replaced_is_loaded_without_a_restart(
    make_node, tmp_path, monkeypatch, let_go, same_name
) -> None:
    node = make_node()
    if let_go == "driver unloaded at start":
        node.machine.driver_loaded(False)
        with pytest.raises(DriverNotLoaded):
            node.snapshot()
    else:
        assert node.snapshot().driver.driver == "580.95.05"
    if let_go == "close":
        node.library.close()
    elif let_go == "driver unloaded":
        node.machine.driver_loaded(False)
        with pytest.raises(DriverNotLoaded):
            node.snapshot()
    # The new library has its own machine, so its answers tell which of the two was asked.
    new = Machine.create(tmp_path / "new", "a30x4", driver=OTHER_BRANCH)
    monkeypatch.setenv("SIMNVML_STATE", str(new.path))
    if same_name:
        file = node.library_file()
        (tmp_path / "fresh").write_bytes(file.read_bytes())
        (tmp_path / "fresh").replace(file)
    else:
        install_library(node.root, OTHER_BRANCH)
    assert not node.mapped()
    snapshot = node.snapshot()
    assert (snapshot.driver.driver, len(snapshot.gpus)) == (OTHER_BRANCH, 4)
    assert node.mapped() == {node.library_file().stat().st_ino}
    new.close()


def test_a_shutdown_that_fails_does_not_keep_the_library(make_node) -> None:
    node = make_node()
    node.snapshot()
    with node.machine.rule("nvmlShutdown", ret=pynvml.NVML_ERROR_UNKNOWN):
        node.library.close()
    assert not node.mapped()
    assert len(node.snapshot().gpus) == 2


def test_pointers_that_others_left_in_the_binding_are_not_used(make_node) -> None:
    node = make_node()
    pynvml.nvmlInit()  # whatever the loader finds: here the library that the test kit has loaded
    pynvml.nvmlShutdown()
    node.snapshot()
    assert node.mapped()


def test_snapshots_of_many_threads_open_the_library_once_and_are_equal(make_node) -> None:
    node = make_node("dgx-h100")
    node.machine.rule("nvmlInit*", delay_ms=30)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: node.snapshot(), range(8)))
    assert found == [found[0]] * 8
    assert node.machine.calls("nvmlInit*") == 1
