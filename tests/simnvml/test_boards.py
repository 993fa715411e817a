"""Do the simulated boards say what the listings of real ones say?"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pynvml as n
import pytest

from hack.simnvml.boards import Board, board, boards
from hack.simnvml.presets import PRESETS, identities
from tests.simnvml.helpers import code_of, create, placements, profiles, start

FACTS = Path(__file__).resolve().parents[1] / "data" / "mig-geometry.txt"
COLUMNS = (
    *("name", "index", "id", "slices", "size", "memory_mib", "sm", "ce", "dec", "enc"),
    *("jpeg", "ofa", "count"),
)
BASE = (0, 9, 1, 2, 3, 4)  # 1g, 1g double memory, 2g, 3g, 4g, 7g


@dataclass(frozen=True, kw_only=True)
class Facts:
    memory: str
    slots: int
    needs_reset: bool
    rows: list[dict[str, str]]


@cache
def facts() -> dict[str, Facts]:
    found: dict[str, Facts] = {}
    for line in FACTS.read_text().splitlines():
        match line.split():
            case ["#", *_]:
                continue
            case ["board", key, memory, slots, change]:
                rows: list[dict[str, str]] = []
                found[key] = Facts(
                    memory=memory, slots=int(slots), needs_reset=change == "reset", rows=rows
                )
            case [*columns, places]:
                rows.append(dict(zip(COLUMNS, columns, strict=True)) | {"places": places})
    return found


@pytest.mark.parametrize("key", facts())
def test_a_board_is_as_listed_and_what_was_never_seen_is_marked(key: str) -> None:
    listed, b = facts()[key], board(key)
    assert (b.slots, b.mig_needs_reset) == (listed.slots, listed.needs_reset)
    assert ("memory_mib" in b.derived) == (listed.memory == "-")
    assert listed.memory in {"-", str(b.memory_mib)}
    assert len(b.profiles) == len(listed.rows)
    for row, profile in zip(listed.rows, b.profiles, strict=True):
        for column in COLUMNS:
            marked = column in profile.derived
            assert row[column] == ("-" if marked else str(getattr(profile, column))), column
        starts, size = row["places"].split(":")
        assert (profile.starts, profile.size) == (tuple(map(int, starts.split(","))), int(size))


@pytest.mark.parametrize("key", [k for k, b in boards().items() if b.profiles])
def test_names_follow_from_memory(key: str) -> None:
    """The rule of NVIDIA's libraries: eighths of the memory, of the total rounded up to GiB."""
    b = board(key)
    for p in b.profiles:
        eighths = math.ceil(8 * p.memory_mib / b.memory_mib)
        gigabytes = math.floor(eighths / 8 * math.ceil(b.memory_mib / 1024) + 0.5)
        assert p.name.split("+")[0].split("-")[0] == f"{p.slices}g.{gigabytes}gb"


# -- packing


def sets_that_fit(b: Board, wanted: tuple[int, ...]) -> set[tuple[int, ...]]:
    """Counts by profile of every set of placements without overlap, by brute force."""
    chosen = [p for index in wanted for p in b.profiles if p.index == index]
    found: set[tuple[int, ...]] = set()

    def extend(counts: tuple[int, ...], taken: frozenset[int], first: int) -> None:
        found.add(counts)
        for k, p in itertools.islice(enumerate(chosen), first, None):
            slices = sum(c * q.slices for c, q in zip(counts, chosen, strict=True)) + p.slices
            if counts[k] == p.count or slices > b.gi_slices:
                continue
            for at in p.starts:
                cells = frozenset(range(at, at + p.size))
                if not cells & taken:
                    extend((*counts[:k], counts[k] + 1, *counts[k + 1 :]), taken | cells, k)

    extend((0,) * len(chosen), frozenset(), 0)
    return found


def fits_one_gpu(n1: int, n1x: int, n2: int, n3: int, n4: int, n7: int) -> bool:
    """The closed form for the 8-slot class."""
    free = 1 - n7
    return (
        n7 <= 1
        and n4 <= free
        and n2 + n3 + 2 * n4 <= 3 * free
        and n1 + 2 * n1x + 2 * n2 + 4 * n3 + 4 * n4 <= 8 * free
        and n1 + n1x + 2 * n2 + 3 * n3 + 4 * n4 <= 7 * free
    )


@pytest.mark.parametrize("key", ["a100-40", "h100-80", "h200", "b200"])
def test_brute_force_over_placements_agrees_with_the_closed_form(key: str) -> None:
    every = itertools.product(range(8), range(5), range(4), range(3), range(2), range(2))
    assert sets_that_fit(board(key), BASE) == {c for c in every if fits_one_gpu(*c)}


@pytest.mark.parametrize("key", ["h100-80", "a30", "rtx-pro-6000"])
def test_the_library_accepts_a_placement_exactly_if_it_is_free(nvml, make_machine, key) -> None:
    """Walks every set of base partitions that can be made, trying every placement in each."""
    make_machine([key]).gpu(0).set(mig_needs_reset=0)
    handle = start(mig=True)
    base = [p for p in board(key).profiles if p.index in BASE]
    places = [(p, at) for p in base for at in p.starts]
    seen: set[frozenset[tuple[int, int]]] = set()

    def walk(taken: frozenset[int], slices: int, made: frozenset[tuple[int, int]]) -> None:
        seen.add(made)
        for p, at in places:
            cells = frozenset(range(at, at + p.size))
            free = not cells & taken and slices + p.slices <= board(key).gi_slices
            if not free:
                assert code_of(create, handle, p.id, at, p.size) == (
                    n.NVML_ERROR_INSUFFICIENT_RESOURCES
                )
            elif (after := made | {(p.id, at)}) not in seen:
                instance = create(handle, p.id, at, p.size)
                walk(taken | cells, slices + p.slices, after)
                n.nvmlGpuInstanceDestroy(instance)

    walk(frozenset(), 0, frozenset())
    assert len(seen) == {"h100-80": 723, "a30": 26, "rtx-pro-6000": 26}[key]


@pytest.mark.parametrize("key", boards())
def test_nvml_reports_what_the_board_file_says(nvml, make_machine, key: str) -> None:
    make_machine([key])
    handle = start()
    listed = profiles(handle)
    assert list(listed) == [p.name for p in sorted(board(key).profiles, key=lambda p: p.index)]
    for p in board(key).profiles:
        info = listed[p.name]
        assert (info.id, info.sliceCount, info.instanceCount) == (p.id, p.slices, p.count)
        assert (info.multiprocessorCount, info.memorySizeMB) == (p.sm, p.memory_mib)
        assert placements(handle, p.id) == [(at, p.size) for at in p.starts]


# -- machines


def test_gpu_identities_follow_the_seed_and_differ_in_the_first_eight_digits() -> None:
    seeds = [f"node-{k}" for k in range(100)]
    every = [who for seed in seeds for who in identities(seed, 8)]
    assert len({who.uuid[:12] for who in every}) == len({who.serial for who in every}) == 800
    assert identities("node-7", 8) == identities("node-7", 8)
    assert identities("node-7", 3) == identities("node-7", 8)[:3]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_comes_up(nvml, make_machine, name: str) -> None:
    machine = make_machine(name)
    n.nvmlInit()
    handles = [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]
    assert [n.nvmlDeviceGetUUID(h) for h in handles] == [gpu.uuid for gpu in machine.gpus]
    assert [n.nvmlDeviceGetName(h) for h in handles] == [
        board(key).product for key in PRESETS[name].boards
    ]
    assert len({n.nvmlDeviceGetPciInfo(h).busId for h in handles}) == len(handles)
