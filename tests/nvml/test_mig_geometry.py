"""What the adapter says a board can be cut into, against what public listings print."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pynvml
import pytest

from driver.core.geometry import Placement
from hack.simnvml.boards import board, boards

FACTS = Path(__file__).resolve().parents[1] / "data" / "mig-geometry.txt"
COLUMNS = (
    *("name", "index", "id", "compute_slices", "size", "memory_mib", "multiprocessors"),
    *("copy_engines", "decoders", "encoders", "jpeg", "ofa", "max_instances"),
)
WITHOUT_MIG = [key for key, each in boards().items() if not each.profiles]
PROFILES = "nvmlDeviceGetGpuInstanceProfileInfoV"
PLACES = "nvmlDeviceGetGpuInstancePossiblePlacements_v2"


def listed() -> Iterator[tuple[str, tuple[int, bool, list[list[str]]]]]:
    """By board: slots, whether a mode change needs a reset, rows of profiles."""
    lines = [x.split() for x in FACTS.read_text().splitlines() if not x.startswith("#")]
    head: list[str] = []
    for is_head, group in groupby(lines, key=lambda words: words[0] == "board"):
        rows = list(group)
        if is_head:
            (head,) = rows
        else:
            yield head[1], (int(head[3]), head[4] == "reset", rows)


LISTED = dict(listed())


@pytest.mark.parametrize("key", LISTED)
def test_every_figure_that_a_listing_prints_is_the_one_of_the_geometry(make_node, key) -> None:
    slots, needs_reset, rows = LISTED[key]
    mig = make_node([key]).gpu().mig
    assert (mig.geometry.slots, mig.switchable) == (slots, not needs_reset)
    assert {p.name for p in mig.geometry.profiles} == {row[0] for row in rows}
    for *figures, places in rows:
        profile = mig.geometry.profile(figures[0])
        for column, figure in zip(COLUMNS, figures, strict=True):
            assert figure in {"-", str(getattr(profile, column))}, (profile.name, column)
        starts, size = places.split(":")
        assert profile.placements == tuple(
            Placement(start=int(start), size=int(size)) for start in starts.split(",")
        )


@pytest.mark.parametrize("key", WITHOUT_MIG)
def test_a_board_that_cannot_be_cut_has_no_geometry_and_is_not_asked_for_one(
    make_node, key
) -> None:
    node = make_node([key])
    mig = node.gpu().mig
    assert (mig.capable, mig.switchable, mig.geometry) == (False, False, None)
    assert node.machine.calls(PROFILES) == 0


def test_geometry_is_the_same_with_mig_on_and_off(make_node) -> None:
    node = make_node("h100x1")
    off = node.gpu().mig
    node.library.close()
    node.machine.gpu(0).set(mig_current=1, mig_pending=1)
    assert node.gpu().mig == replace(off, enabled=True, pending=True)


def test_geometry_is_read_once_for_a_driver_even_if_the_library_is_closed_in_between(
    make_node,
) -> None:
    node = make_node("h100x2")
    first = node.snapshot()
    asked = node.machine.calls(PROFILES) + node.machine.calls(PLACES)
    node.library.close()
    second = node.snapshot()
    assert node.machine.calls(PROFILES) + node.machine.calls(PLACES) == asked
    assert second.gpus[0].mig.geometry is first.gpus[0].mig.geometry
    node.machine.set(driver="590.10")
    node.snapshot()
    assert node.machine.calls(PROFILES) + node.machine.calls(PLACES) == 2 * asked


def alter(node, name: str, /, **changed) -> None:
    """Gives GPU 0 a profile that differs from the board's."""
    facts = board("h100-80")
    position = next(i for i, p in enumerate(facts.profiles) if p.name == name)
    profiles = list(facts.profiles)
    profiles[position] = replace(profiles[position], **changed)
    node.machine.add_profile(0, replace(facts, profiles=tuple(profiles)), position)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"name": ""}, ["index 0"]),
        ({"starts": ()}, ["1g.10gb"]),
        ({"name": "1g.10gb NVL"}, ["1g.10gb NVL"]),
        ({"name": "1g.10GB"}, ["1g.10GB"]),
        ({"name": "1g.10gb.cc"}, ["1g.10gb.cc"]),
        ({"name": "1g.10gb+me"}, ["1g.10gb+me", "1g.10gb+me"]),
    ],
    ids=["no name", "no placement", "space", "case", "suffix", "twice"],
)
def test_a_profile_that_cannot_be_offered_is_left_out_with_one_line(
    make_node, caplog, changed, told
) -> None:
    node = make_node("h100x2")
    alter(node, "1g.10gb", **changed)
    cut, whole = (gpu.mig.geometry for gpu in node.snapshot().gpus)
    node.snapshot()
    assert cut == replace(
        whole, profiles=tuple(p for p in whole.profiles if p.name not in {"1g.10gb", *told})
    )
    assert [line.profile for line in caplog.records] == told


def test_a_profile_that_no_version_of_ours_has_heard_of_is_taken_as_nvml_tells_it(
    make_node,
) -> None:
    node = make_node("h100x1")
    facts = board("h100-80")
    new = replace(facts.profiles[0], name="1g.10gb+new", index=17, id=99, starts=(6,))
    node.machine.add_profile(0, replace(facts, profiles=(new,)), 0)
    profile = node.gpu().mig.geometry.profile("1g.10gb+new")
    assert (profile.index, profile.id, profile.starts) == (17, 99, (6,))


@pytest.mark.parametrize("symbol", [PROFILES, PLACES, "nvmlDeviceGetGpuInstances"])
def test_a_gpu_whose_mig_part_fails_is_there_without_it_and_that_is_told_once(
    make_node, caplog, symbol
) -> None:
    node = make_node("h100x2")
    for gpu in node.machine.gpus:
        gpu.set(mig_current=1, mig_pending=1)
    for version in ("590.10", "590.20"):  # what is known of a driver is not asked again
        node.machine.set(driver=version)
        with node.machine.rule(symbol, ret=pynvml.NVML_ERROR_UNKNOWN, gpu=0):
            for _ in range(3):
                snapshot = node.snapshot()
        failed, well = snapshot.gpus
        assert snapshot.lost == ()
        assert (failed.mig.enabled, failed.mig.geometry, failed.mig.instances) == (True, None, ())
        assert failed.mig.unread.endswith("Unknown Error (NVML code 999)")
        assert well.mig.geometry is not None
        assert node.gpu().mig == well.mig
    assert [line.gpu for line in caplog.records] == [failed.uuid] * 2


@pytest.mark.parametrize(
    "code", [pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH]
)
def test_a_driver_that_cannot_name_profiles_gives_no_geometry_but_the_gpu(make_node, code) -> None:
    node = make_node("h100x1")
    with node.machine.rule(PROFILES, ret=code):
        mig = node.gpu().mig
    assert (mig.capable, mig.geometry, mig.unread) == (True, None, "")


def test_reading_a_gpu_while_its_partitions_come_and_go_never_fails(make_node) -> None:
    node = make_node("h100x1")
    node.machine.gpu(0).set(mig_current=1, mig_pending=1)
    gpu = node.gpu()
    partitions = node.partitions
    profile = gpu.mig.geometry.profile("1g.10gb")
    stop = threading.Event()
    made = 0

    def come_and_go() -> None:
        nonlocal made
        while not stop.is_set():
            instance = partitions.create(gpu.uuid, profile, profile.placements[3])
            compute = partitions.create_compute(gpu.uuid, instance)
            partitions.destroy_compute(gpu.uuid, instance, compute.id)
            partitions.destroy(gpu.uuid, instance)
            made += 1

    worker = threading.Thread(target=come_and_go)
    worker.start()
    seen = [node.gpu().mig for _ in range(200)]
    stop.set()
    worker.join()
    assert made > 20
    assert {mig.geometry for mig in seen} == {gpu.mig.geometry}
    assert {i.placement.start for mig in seen for i in mig.instances} <= {3}


def test_an_instance_that_answers_wrongly_for_ever_is_not_taken_for_one_that_went(
    make_node,
) -> None:
    node = make_node("h100x1")
    node.machine.gpu(0).set(mig_current=1, mig_pending=1)
    gpu = node.gpu()
    profile = gpu.mig.geometry.profile("3g.40gb")
    node.partitions.create(gpu.uuid, profile, profile.placements[0])
    with node.machine.rule("nvmlGpuInstanceGetInfo", ret=pynvml.NVML_ERROR_INVALID_ARGUMENT):
        assert node.gpu().mig.geometry is None
    with node.machine.rule(
        "nvmlGpuInstanceGetInfo", ret=pynvml.NVML_ERROR_INVALID_ARGUMENT, times=2
    ):
        assert len(node.gpu().mig.instances) == 1
